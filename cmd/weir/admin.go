package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
)

// awaitTime is how long a load waits for the reports of the hosts.
const awaitTime = 10 * time.Second

// administrator is a connection to the store with the rights of an administrator.
type administrator struct {
	*client.Client
	name   string
	key    ed25519.PrivateKey
	member *disk.Member
}

// isMember reports whether this host has joined a cluster.
func (c *call) isMember() (bool, error) {
	_, err := disk.ReadMember(c.paths().Store())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil // without the right to read, the node refuses what is to be refused
	}
	return err == nil, err
}

// administrator connects to the store.
func (c *call) administrator() (*administrator, error) {
	m, err := disk.ReadMember(c.paths().Store())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoCluster{}
	}
	if err != nil {
		return nil, err
	}
	credential, err := identity.ReadCredential(c.paths().Admin())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoAdmin{c.paths().Admin()}
	}
	if err != nil {
		return nil, err
	}
	peer, err := credential.Peer()
	if err != nil {
		return nil, err
	}
	secured, err := credential.ClientTLS()
	if err != nil {
		return nil, err
	}
	a := &administrator{name: peer.ID.Name, key: credential.Key, member: m}
	stores := c.stores(m)
	a.Client, err = client.New(client.Config{Name: m.Name, Cluster: m.Cluster.String(),
		Stores: func() []string { return stores }, TLS: secured,
		Dial: new(eyeballs.Dialer).DialContext})
	return a, err
}

// stores returns the addresses of weir-stores: those that the host's copy of the store names, and
// those that the host joined by, which may be gone.
func (c *call) stores(m *disk.Member) []string {
	s, err := disk.Read(c.paths().Store())
	if err != nil { // it has none yet, or is damaged
		return m.Stores
	}
	id, err := cluster.Decode[cluster.Identity](s.Value(cluster.IdentityKey))
	if err != nil || id.ID != m.Cluster {
		return m.Stores
	}
	return slices.Concat(id.Stores, m.Stores)
}

// signer is the administrator who signs, and what this host knows. Only what signs needs that: the
// other commands show a cluster on a host whose record is damaged, too.
func (c *call) signer(a *administrator) (admin.Signer, disk.Local, error) {
	local, err := disk.ReadLocal(c.paths().Store())
	if err != nil {
		return admin.Signer{}, local, err
	}
	knows := local.Trust(cluster.Trust{Cluster: a.member.Cluster, Epoch: a.member.Epoch,
		Admins: a.member.Admins})
	knows.Head = local.Seen
	return admin.Signer{Key: a.key, Knows: knows}, local, nil
}

// asAdmin does something with the store. Each call ends when the store is silent; all of them may
// take longer on a slow line.
func (c *call) asAdmin(do func(context.Context, *administrator) error) error {
	a, err := c.administrator()
	if err != nil {
		return c.failed(err)
	}
	defer a.Close()
	return c.failed(do(c.ctx, a))
}

// ruleParser returns what parses rules with the names of this machine.
func ruleParser() func(name, text string) (*rule.Ruleset, error) {
	names := rulefile.SystemNames()
	return func(name, text string) (*rule.Ruleset, error) {
		return rule.ParseFile(name, text, names)
	}
}

// errNoCluster refuses what only a host of a cluster can do.
type errNoCluster struct{}

func (errNoCluster) Error() string { return "this host has not joined a cluster" }

// Hint returns how to join one.
func (errNoCluster) Hint() string { return "weir join TOKEN@HOST" }

// errNoAdmin means that this host has no right to change the cluster.
type errNoAdmin struct{ file string }

func (e errNoAdmin) Error() string {
	return fmt.Sprintf("there is no credential of an administrator: %s", e.file)
}

// Hint returns where there is one.
func (errNoAdmin) Hint() string {
	return "use the host on which weir cluster init wrote it"
}

// loadCluster loads a text for a scope of the cluster, and prints what came of it.
func (c *call) loadCluster(scope cluster.Scope, name, text string, try time.Duration) error {
	return c.asAdmin(func(ctx context.Context, a *administrator) error {
		if _, err := rulefile.Check(name, text); err != nil {
			return err
		}
		sign, _, err := c.signer(a)
		if err != nil {
			return err
		}
		l := admin.Loading{Scope: scope, Name: name, Text: text, By: a.name, Trial: try,
			Sign: sign, Parse: ruleParser()}
		if s := session(); s != nil {
			l.Session = &cluster.Session{From: s.From, To: s.To}
		}
		head, hosts, err := admin.Load(ctx, a, l)
		if err != nil {
			return err
		}
		if err := c.outcome(ctx, a, head, hosts); err != nil {
			return err
		}
		if try > 0 {
			fmt.Fprintf(c.out, "on trial for %v; keep it: weir fw confirm\n", try)
		}
		return nil
	})
}

// outcome waits for the hosts and prints what came of a version.
func (c *call) outcome(ctx context.Context, a *administrator, head *cluster.Head,
	hosts []string) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, awaitTime)
	defer cancel()
	o, err := admin.Await(ctx, a, head.Number, hosts)
	if err != nil {
		return advice{fmt.Errorf("version %s is in the store, but the reports of the hosts cannot "+
			"be read: %w", head.Number, err), "weir node list shows which hosts enforce it"}
	}
	fmt.Fprintf(c.out, "version %s enforced on %d of %s in %d ms\n", head.Number,
		len(o.Enforced), plural(len(hosts), "host"), time.Since(began).Milliseconds())
	for _, name := range slices.Sorted(maps.Keys(o.Refused)) {
		fmt.Fprintf(c.out, "refused on %s: %s\n", name, c.show(o.Refused[name]))
	}
	if len(o.Silent) > 0 {
		fmt.Fprintf(c.out, "silent: %s\n", strings.Join(o.Silent, " "))
	}
	if len(o.Refused)+len(o.Silent) > 0 {
		return statusError(1)
	}
	return nil
}

// confirmCluster confirms the version on trial.
func (c *call) confirmCluster(without admin.Without) error {
	return c.asAdmin(func(ctx context.Context, a *administrator) error {
		sign, _, err := c.signer(a)
		if err != nil {
			return err
		}
		head, hosts, err := admin.Confirm(ctx, a, a.name, sign, without)
		if err != nil {
			return err
		}
		return c.outcome(ctx, a, head, hosts)
	})
}

// revertCluster ends the trial of a version on all hosts.
func (c *call) revertCluster() error {
	return c.asAdmin(func(ctx context.Context, a *administrator) error {
		head, hosts, err := admin.Revert(ctx, a)
		if err != nil {
			return err
		}
		return c.outcome(ctx, a, head, hosts)
	})
}

// errLasting refuses a member with a timeout in a shared table, where it would stay.
type errLasting string

func (e errLasting) Error() string {
	return fmt.Sprintf("table %s is one of the cluster, whose members have no timeout", string(e))
}

// Hint returns how to end a member.
func (e errLasting) Hint() string {
	return fmt.Sprintf("add it without one, and end it with: weir fw table %s delete PREFIX",
		string(e))
}

// changeShared adds members to a shared table, or deletes them.
func (c *call) changeShared(line string, quiet bool) error {
	command, err := rule.ParseLine(line, rulefile.SystemNames())
	if err != nil {
		return c.failed(err)
	}
	for i := range command.Entries {
		if command.Timeout(i) > 0 {
			return c.failed(errLasting(command.Table))
		}
	}
	return c.asAdmin(func(ctx context.Context, a *administrator) error {
		var l api.Done
		n := 0
		switch command.Kind {
		case rule.CommandTableAdd:
			var members []cluster.Member
			for _, e := range command.Entries {
				members = append(members, cluster.Member{Prefix: e.Prefix, Value: e.Value})
			}
			if err := admin.MayShare(ctx, a, command.Table, ruleParser()); err != nil {
				return err
			}
			n, err = admin.ChangeMembers(ctx, a, command.Table, members, nil)
		case rule.CommandTableDelete:
			n, err = admin.ChangeMembers(ctx, a, command.Table, nil, prefixes(command.Entries))
		default:
			return errors.New("only add and delete change a shared table; others come with " +
				"rules: weir fw load")
		}
		l.Message = fmt.Sprintf("%d of %s changed in table %s of the cluster", n,
			plural(len(command.Entries), "member"), command.Table)
		if err == nil {
			c.message(l, quiet)
		}
		return err
	})
}
