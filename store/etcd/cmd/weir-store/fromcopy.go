package main

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
)

// fromCopy makes a cluster again whose stores are all lost, with what a host has on its disk.
func (h home) fromCopy(ctx context.Context, c *call, f *initRequest) error {
	if _, err := os.Lstat(h.file(caFile)); err != nil {
		return fmt.Errorf("hosts trust only the CA that they joined: put its %s there first: %w",
			caFile, err)
	}
	if _, err := os.Lstat(h.file(etcdDir)); f.Etcd == nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is a store in %s already: serve it, or move it away",
			h.file(etcdDir))
	}
	ca, own, err := h.identities(f)
	if err != nil {
		return err
	}
	copied, err := f.copied(ca, own)
	if err != nil {
		return err
	}
	entries, err := copied.Entries()
	if err != nil {
		return withTexts(err)
	}
	var key ed25519.PrivateKey
	if f.withoutKeys {
		entries, err = withoutKeys(entries, copied.Admins())
	} else {
		key, err = restoreKey(entries, copied.Admins(), f.sign, own)
	}
	if err != nil {
		return err
	}
	var before members.PriorState
	before.Epoch, before.RevokedHosts = copied.EpochAndRevoked()
	had, err := h.epoch()
	if err != nil {
		return err
	}
	seen, err := h.readRevocations()
	if err != nil {
		return err
	}
	before.Epoch = max(before.Epoch, had)
	before.RevokedHosts = append(before.RevokedHosts, seen.all().Hosts...)
	before.RevokedOthers = seen.all().Others
	before.Admins = copied.Admins()
	prepared, err := members.PrepareRestore(entries, before, key)
	if err != nil {
		return err
	}
	if len(f.Pools) == 0 {
		if f.Pools, err = h.poolsOf(entries); err != nil {
			return err
		}
	}
	if !f.withoutKeys {
		if err := h.pinKeys(copied.Admins()); err != nil {
			return err
		}
	}
	if f.Etcd != nil {
		if err := h.writeConfig(f.config); err != nil {
			return err
		}
	}
	if _, err := h.replaceStore(ctx, replacement{Config: f.config, Epoch: prepared.Epoch,
		WithoutKeys: f.withoutKeys}, prepared); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "cluster %s from %s: %d entries of revision %d, epoch %d\nweir-store: %s\n"+
		"administrator %s: %s\n", ca.Cluster(), f.copyDir, len(entries),
		copied.Revision(), prepared.Epoch, f.Address, f.admin, f.adminFile)
	for _, r := range prepared.Replaced {
		fmt.Fprintf(c.out, "someone else has written into the store: %s\n", r)
	}
	if !slices.Contains(copied.Stores(), f.Address) {
		fmt.Fprintf(c.out, "hosts look for a weir-store at %v: give one of these names to this "+
			"host, or let the hosts join again\n", copied.Stores())
	}
	return nil
}

// copied reads the copy, and changes nothing there.
func (f *initRequest) copied(ca *identity.CA, own *identity.Credential) (*disk.HostCopy, error) {
	c := &disk.HostCopy{Address: f.Address, CA: ca.Certificate()}
	id, err := hex.DecodeString(ca.Cluster())
	if err != nil || len(id) != len(cluster.Serial{}) {
		return nil, errors.New("the CA is not one of a cluster")
	}
	key, err := identity.CAKey(ca.Certificate())
	if err != nil {
		return nil, err
	}
	peer, err := own.Peer()
	if err != nil {
		return nil, err
	}
	c.Admin = cluster.IssuedCertificate{ID: peer.ID.String(), Serial: cluster.Serial(peer.Serial)}
	c.Trust = cluster.Trust{Cluster: cluster.Serial(id), CA: []cluster.Key{cluster.Key(key)}}
	var revoked []cluster.Serial // of which the files of Local may not know
	m, err := disk.ReadMember(f.copyDir)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a copy that was carried here without the host's key
	case err != nil:
		return nil, err
	default:
		c.Trust.Epoch, c.Trust.Admins, revoked = m.Epoch, m.Admins, m.Revoked
	}
	if c.Local, err = disk.ReadLocal(f.copyDir); err != nil {
		return nil, err
	}
	c.Local.Revoked = append(c.Local.Revoked, revoked...)
	if c.State, err = disk.Read(f.copyDir); err != nil {
		return nil, err
	}
	if c.Texts, err = disk.ReadTexts(filepath.Join(f.copyDir, "texts")); err != nil {
		return nil, err
	}
	for _, dir := range f.texts {
		if _, err := os.Stat(dir); err != nil {
			return nil, err
		}
		more, err := disk.ReadTexts(dir)
		if err != nil {
			return nil, err
		}
		maps.Copy(c.Texts, more)
	}
	return c, nil
}

// poolsOf returns the pools that a cluster had which is made again: those of an earlier run in this
// directory, or none if the copy has none. What the copy has is unsigned, and the CA signs ranges
// of the pools: so an administrator has to name them.
func (h home) poolsOf(entries []store.Entry) ([]cluster.Pool, error) {
	if _, err := os.Lstat(h.file(configFile)); err == nil {
		if before, err := h.config(); err != nil || before.Pools != nil {
			return before.Pools, err
		}
	}
	var options []string
	var given []netip.Prefix // to hosts
	for _, e := range entries {
		if strings.HasPrefix(e.Key, cluster.NodeTree) {
			if node, err := cluster.Decode[cluster.Node](e.Value); err == nil {
				given = append(given, node.Ranges...)
			}
		}
		if e.Key != cluster.IdentityKey {
			continue
		}
		doc, err := cluster.Decode[cluster.Identity](e.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
		for _, p := range doc.Pools {
			options = append(options, fmt.Sprintf("--pool %v:%d", p.Supernet, p.Bits))
		}
	}
	if len(options) > 0 {
		return nil, fmt.Errorf("the copy says of which pools hosts get ranges, but no one has "+
			"signed that: if these were the pools, add %s", strings.Join(options, " "))
	}
	if len(given) > 0 {
		return nil, fmt.Errorf("the copy does not say of which pools hosts get ranges, and they "+
			"have some, such as %v: add --pool NETWORK:LENGTH", given[0])
	}
	return []cluster.Pool{}, nil
}

// withTexts says where the rules are that a copy does not have.
func withTexts(err error) error {
	var missing *disk.MissingTextsError
	if errors.As(err, &missing) {
		return fmt.Errorf("%w: copy /var/lib/weir/store/texts of these hosts here, and name each "+
			"copy with --texts DIR", err)
	}
	return err
}

// withoutKeys leaves out the keys of administrators, unless the host of the copy demands a
// signature.
func withoutKeys(entries []store.Entry, known cluster.KeyList) ([]store.Entry, error) {
	if known.Locked() {
		return nil, errors.New("the host of the copy demands signed rules: leave --without-keys " +
			"away")
	}
	return slices.DeleteFunc(entries, func(e store.Entry) bool {
		return e.Key == cluster.KeysKey
	}), nil
}

// restoreKey returns the key that signs the version; nil if no one has to. known are the keys that
// the host of the copy demands: those of the store count only without them.
func restoreKey(entries []store.Entry, known cluster.KeyList, file string,
	own *identity.Credential) (ed25519.PrivateKey, error) {
	key, err := signer(file)
	if err != nil {
		return nil, err
	}
	l := known
	for _, e := range entries {
		if e.Key != cluster.KeysKey || known.Locked() {
			continue
		}
		doc, err := cluster.Decode[cluster.AdminKeys](e.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
		l = doc.Newest()
	}
	if !l.Locked() {
		return key, nil
	}
	if key == nil {
		key = own.Key
	}
	if !l.Has(admin.KeyOf(key)) {
		return nil, errors.New("hosts demand the signature of another administrator: give --sign " +
			"FILE with the credential of that one; if the rules were never signed, someone else " +
			"has written the keys: leave them out (--without-keys)")
	}
	return key, nil
}
