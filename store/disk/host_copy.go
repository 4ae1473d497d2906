package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// HostCopy is a host's data of its cluster on disk, from which a lost store can be rebuilt.
type HostCopy struct {
	State State
	Local Local
	Trust cluster.Trust // with the CA whose key is there
	Texts map[cluster.Digest]string
	// Admin and Address are of the new store: its administrator, and what hosts connect to.
	Admin   cluster.IssuedCertificate
	Address string
	CA      []byte // its certificate, DER
}

// MissingTextsError says that the rules of some scopes are on other hosts.
type MissingTextsError struct {
	Scopes []cluster.Scope
	Hosts  map[cluster.Scope][]string // that enforce them
}

func (e *MissingTextsError) Error() string {
	var all []string
	for _, s := range e.Scopes {
		on := strings.Join(e.Hosts[s], ", ")
		if on == "" {
			on = "no host that is known"
		}
		all = append(all, fmt.Sprintf("%s (on %s)", s, on))
	}
	return "this host does not have the rules of every scope: " + strings.Join(all, "; ")
}

// Entries returns the entries of a backup that is what the host enforces: for
// members.PrepareRestore.
func (c *HostCopy) Entries() ([]store.Entry, error) {
	guarded, d := c.replay()
	all := map[string][]byte{}
	for _, e := range guarded.Enforced().Entries {
		all[e.Key] = e.Value
	}
	for _, e := range d.LastGood() {
		all[e.Key] = e.Value
	}
	h := d.Head()
	if h == nil {
		h = c.Local.Confirmed
	}
	return c.entries(all, d, h)
}

// EpochAndRevoked returns the highest epoch that the host has seen, and the serial numbers of
// removed hosts.
func (c *HostCopy) EpochAndRevoked() (epoch uint64, revoked []cluster.Serial) {
	_, d := c.replay()
	return d.Trust().Epoch, d.Revoked()
}

// Admins returns the keys of administrators that the host demands.
func (c *HostCopy) Admins() cluster.KeyList {
	_, d := c.replay()
	return d.Trust().Admins
}

// Revision is that of the copy.
func (c *HostCopy) Revision() int64 {
	g, _ := c.replay()
	return g.Stored().Revision
}

// Stores returns the addresses of weir-stores that the hosts have.
func (c *HostCopy) Stores() []string {
	_, d := c.replay()
	return d.Stores()
}

// replay does what the host does when it starts.
func (c *HostCopy) replay() (*store.Guarded, *cluster.Desired) {
	d := cluster.NewDesired("", c.Local.Trust(c.Trust), c.Local.Revoked)
	g := store.NewGuarded(d.Guard(), c.State.Stored)
	g.Hold(c.State.Held)
	d.Load(c.State.LastGood, g.Enforced().Entries)
	for _, r := range c.State.Log {
		if r.Accept {
			d.Apply(g.Accept())
		} else {
			d.Apply(g.Step(r.Batch))
		}
	}
	d.SetSeen(c.Local.Seen, c.Local.Confirmed)
	return g, d
}

func (c *HostCopy) entries(all map[string][]byte, d *cluster.Desired, h *cluster.Head) (
	entries []store.Entry, err error) {
	set := func(key string, doc cluster.Document) {
		value, bad := cluster.Encode(doc)
		all[key], err = value, errors.Join(err, bad)
	}
	id, bad := cluster.Decode[cluster.Identity](all[cluster.IdentityKey])
	if c.Local.Cluster == c.Trust.Cluster && (bad != nil || id.ID != c.Trust.Cluster) {
		// An attacker in the store wrote it, or a later Weir, whose document the host does not
		// follow.
		id, bad = cluster.Identity{ID: c.Trust.Cluster, CA: [][]byte{c.CA}}, nil
	}
	if bad != nil || id.ID != c.Trust.Cluster {
		return nil, fmt.Errorf("%s is not that of cluster %v: %w", cluster.IdentityKey,
			c.Trust.Cluster, errors.Join(bad, cluster.ErrDocument))
	}
	id.Epoch, id.Stores = d.Trust().Epoch, []string{c.Address}
	set(cluster.IdentityKey, &id)
	issued, bad := cluster.Decode[cluster.Issued](all[cluster.IssuedKey])
	if bad != nil {
		issued = cluster.Issued{} // credentials are issued again
	}
	if !slices.Contains(issued.Certificates, c.Admin) {
		issued.Certificates = append(issued.Certificates, c.Admin)
		slices.SortFunc(issued.Certificates, cluster.IssuedCertificate.Compare)
	}
	set(cluster.IssuedKey, &issued)
	if _, bad = cluster.Decode[cluster.AdminKeys](all[cluster.KeysKey]); bad != nil {
		delete(all, cluster.KeysKey)
		if l := d.Trust().Admins; l.Locked() {
			set(cluster.KeysKey, &cluster.AdminKeys{Lists: []cluster.KeyList{l}})
		}
	}
	for key := range all { // certificates that the host did not accept
		name, ok := strings.CutPrefix(key, cluster.NodeTree)
		if ok && d.Node(name) == nil {
			delete(all, key)
		}
	}
	for _, host := range d.Hosts() { // no copy has the ranges
		for _, r := range host.Node.Ranges {
			value, bad := json.Marshal(cluster.Owner{Name: host.Name})
			all[cluster.RangeKey(r)], err = value, errors.Join(err, bad)
		}
	}
	if h != nil {
		if h.Trial != nil {
			h = &h.Trial.Revert
		}
		set(cluster.HeadKey, h)
		parts, bad := c.texts(d, h)
		err = errors.Join(err, bad)
		for _, p := range parts {
			all[p.Key] = p.Value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		entries = append(entries, store.Entry{Key: key, Value: all[key]})
	}
	return entries, err
}

// texts returns the entries with the rules of a version.
func (c *HostCopy) texts(d *cluster.Desired, h *cluster.Head) (all []store.Entry, err error) {
	missing := &MissingTextsError{Hosts: map[cluster.Scope][]string{}}
	for _, scope := range slices.Sorted(maps.Keys(h.Scopes)) {
		text, ok := c.Texts[h.Scopes[scope]]
		if ok {
			_, parts, err := cluster.EncodeText(text)
			if err != nil {
				return nil, err
			}
			all = append(all, parts...)
			continue
		}
		missing.Scopes = append(missing.Scopes, scope)
		for _, host := range d.Hosts() {
			of := host.Node.Host()
			if slices.Contains(of.Scopes(), scope) {
				missing.Hosts[scope] = append(missing.Hosts[scope], host.Name)
			}
		}
	}
	if len(missing.Scopes) > 0 {
		return nil, missing
	}
	return all, nil
}
