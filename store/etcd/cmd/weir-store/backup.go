package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
)

// backup writes a file of mode 0600: it has the rules.
func backup(ctx context.Context, c *call) error {
	if err := c.parse(); err != nil {
		return err
	}
	_, _, d, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	var n int
	var leftOut []string
	err = atomicfile.WriteFunc(c.args[0], func(to io.Writer) (err error) {
		n, leftOut, err = members.Backup(ctx, d, to)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%d entries\n", n)
	if len(leftOut) > 0 {
		fmt.Fprintf(c.out, "%d more are left out, which no weir-store has written: look who else "+
			"writes into etcd; the first is %q\n", len(leftOut), leftOut[0])
	}
	return warnOfGarbage(ctx, c, d)
}

// warnOfGarbage names the documents of the whole cluster that are not valid: a restore replaces
// them, or refuses the backup.
func warnOfGarbage(ctx context.Context, c *call, s store.Store) error {
	_, err := readIdentity(ctx, s)
	_, _, head := document[cluster.Head](ctx, s, cluster.HeadKey)
	_, _, keys := document[cluster.AdminKeys](ctx, s, cluster.KeysKey)
	for _, err := range []error{err, head, keys} {
		switch {
		case err == nil:
		case errors.Is(err, cluster.ErrNewer), errors.Is(err, cluster.ErrDocument):
			fmt.Fprintf(c.out, "%v: this weir-store has not written that: look who else writes "+
				"into etcd, and keep earlier backups\n", err)
		default:
			return err
		}
	}
	return nil
}

// restore begins a new store of one member with a backup. The one before is kept beside it.
func restore(ctx context.Context, c *call) error {
	sign := c.signing()
	withoutRules := c.flags.Bool("without-rules", false, "leave out the version of the rules, "+
		"which someone else may have written into the store: hosts keep those that they have")
	withoutKeys := c.flags.Bool("without-keys", false, "leave out the keys of administrators, "+
		"which someone else has written into the store of a cluster whose rules are not signed")
	if err := c.parse(); err != nil {
		return err
	}
	if *withoutKeys && *sign != "" {
		return errors.New("without keys of administrators nothing is signed: give --sign or " +
			"--without-keys, not both")
	}
	file, err := os.Open(c.args[0])
	if err != nil {
		return err
	}
	defer file.Close()
	entries, err := members.ReadBackup(file)
	if err != nil {
		return fmt.Errorf("%s: %w", c.args[0], err)
	}
	entries = slices.DeleteFunc(entries, func(e store.Entry) bool {
		return *withoutRules && e.Key == cluster.HeadKey ||
			*withoutKeys && e.Key == cluster.KeysKey
	})
	key, err := signer(*sign)
	if err != nil {
		return err
	}
	h := home(c.dir)
	held, err := h.forRestore(ctx)
	if err != nil {
		return err
	}
	defer held.Close()
	cfg, err := h.config()
	if err != nil {
		return err
	}
	before, err := h.before(cfg)
	if err != nil {
		return err
	}
	if *withoutKeys {
		before.Admins = cluster.KeyList{}
	}
	prepared, err := members.PrepareRestore(entries, before, key)
	if err != nil {
		return fmt.Errorf("%s: %w", c.args[0], err)
	}
	r := replacement{Config: cfg, Epoch: prepared.Epoch, WithoutKeys: *withoutKeys}
	r.Config.Peers = nil
	kept, err := h.replaceStore(ctx, r, prepared)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%d entries, epoch %d", len(entries), prepared.Epoch)
	if kept != "" {
		fmt.Fprintf(c.out, "; the store before is in %s", kept)
	}
	fmt.Fprintln(c.out)
	for _, r := range prepared.Replaced {
		fmt.Fprintf(c.out, "someone else has written into the store: %s\n", r)
	}
	if n := len(prepared.Stores); n > 0 {
		fmt.Fprintf(c.out, "hosts use the weir-store at %s; weir cluster grow adds others: the "+
			"backup had %d other weir-stores, such as %q\n", cfg.Address, n, prepared.Stores[0])
	}
	if key != nil && !before.Admins.Locked() {
		fmt.Fprint(c.out, "this host had no file keys, so the keys of administrators are those of "+
			"the backup: see whether weir cluster keys lists the right ones before a host joins\n")
	}
	if *withoutRules {
		fmt.Fprint(c.out, "the store has no rules: load those of every scope (weir fw load "+
			"--on); if they are signed, weir cluster sign puts those of a host back\n")
	}
	return nil
}

// before returns what this host knows without the store.
func (h home) before(cfg config) (b members.PriorState, err error) {
	seen, err := h.readRevocations()
	if err != nil {
		return b, err
	}
	b.RevokedHosts, b.RevokedOthers = seen.all().Hosts, seen.all().Others
	if b.Epoch, err = h.epoch(); err != nil {
		return b, err
	}
	if b.Admins, err = h.pinnedKeys(); err != nil {
		return b, err
	}
	own, err := identity.ReadCredential(h.file(storeFile))
	if err != nil {
		return b, err
	}
	b.Identity = cluster.Identity{CA: own.CAs[:1], Pools: cfg.Pools,
		Stores: []string{cfg.Address}}
	b.Identity.ID, err = clusterOf(own.CAs[0])
	return b, err
}

// clusterOf returns the id of the cluster of a CA.
func clusterOf(ca []byte) (id cluster.Serial, err error) {
	text, err := identity.CACluster(ca)
	if err == nil {
		err = id.UnmarshalText([]byte(text))
	}
	if err != nil {
		return id, fmt.Errorf("the cluster of the CA: %w", err)
	}
	return id, nil
}

// forRestore holds the directory, and finishes an earlier restore that was cut off.
func (h home) forRestore(ctx context.Context) (held *os.File, err error) {
	if h.runs(ctx) {
		return nil, errors.New("weir-store runs: stop it first, on all store hosts")
	}
	if held, err = h.hold(); err != nil {
		return nil, err
	}
	if _, err := h.finish(); err != nil {
		held.Close()
		return nil, err
	}
	return held, nil
}
