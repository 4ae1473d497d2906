package members

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// Certificates are the certificates of hosts, by name, that the CA has signed, as a store host
// knows them without the store. They bind a name to a key and to ranges. An attacker in the store
// can delete a certificate there, put an earlier one back, or revoke it without the rules lock, but
// then the name is not free. It is when the CA has signed the removal record.
type Certificates map[string]Certificate

// Certificate is a certificate of a host.
type Certificate struct {
	cluster.Node
	Value []byte // as it is in the store
}

// Note takes the certificates among changes of the store, and forgets those whose names are free.
// ca are the keys that sign them, and revoked reports whether one is revoked. Of two of a name, the
// first one stays, unless the second one replaces it.
func (c Certificates) Note(changes []store.Change, ca []cluster.Key,
	revoked func(cluster.Serial) bool) (changed bool) {
	for _, ch := range changes { // before the certificates of hosts that came after them
		name, ok := strings.CutPrefix(ch.Key, cluster.RemovedTree+"node/")
		had, there := c[name]
		if !ok || !there || ch.Deleted {
			continue
		}
		r, err := cluster.Decode[cluster.RemovalRecord](ch.Value)
		if err == nil && r.Frees(ch.Key, had.Serial, ca) {
			delete(c, name)
			changed = true
		}
	}
	for _, ch := range changes {
		name, ok := strings.CutPrefix(ch.Key, cluster.NodeTree)
		had, there := c[name]
		if !ok || ch.Deleted || there && bytes.Equal(had.Value, ch.Value) {
			continue
		}
		n, err := cluster.Decode[cluster.Node](ch.Value)
		if err != nil || n.Name != name || revoked(n.Serial) || n.Verify(ca) != nil ||
			there && n.Serial != had.Serial && !slices.Contains(n.Replaces, had.Serial) {
			continue
		}
		c[name], changed = Certificate{n, ch.Value}, true
	}
	return changed
}

// learnBound updates what is bound before a join: the removal of a host may have arrived in the
// store a moment ago. keys and removed are what was just read of the keys of administrators, and of
// the removal record of the host that joins.
func (j *Joiner) learnBound(ctx context.Context, keys, removed store.Snapshot) error {
	j.known.bound = nil
	if j.Bound == nil {
		return nil
	}
	var changes []store.Change
	note := func(got store.Snapshot) {
		for _, e := range got.Entries {
			changes = append(changes, store.Change{Entry: e})
		}
	}
	note(keys)
	note(removed)
	var records []string
	for name, c := range j.Bound() {
		e, there := j.known.hosts.Get(cluster.NodeTree + name)
		if there && bytes.Equal(e.Value, c.Value) {
			continue
		}
		records = append(records, removedKey(name))
		if there {
			changes = append(changes, store.Change{Entry: e})
		}
	}
	all, err := readAll(ctx, j.store, 0, records...)
	if err != nil {
		return err
	}
	for _, got := range all {
		note(got)
	}
	j.Note(changes)
	j.known.bound = j.Bound()
	return nil
}

// certificates returns the certificates that a name has: that of the store, then that which is
// bound, if it is another one. revision is that of the store's, 0 if it has none.
func (j *Joiner) certificates(name string) (all []cluster.Node, revision int64, err error) {
	key := cluster.NodeTree + name
	bound, isBound := j.known.bound[name]
	if e, there := j.known.hosts.Get(key); there {
		revision = e.Revision
		n, err := cluster.Decode[cluster.Node](e.Value)
		switch {
		case err == nil && !(isBound && n.Serial == bound.Serial):
			all = append(all, n)
		case err != nil && !isBound:
			return nil, 0, fmt.Errorf("%s: %w", key, err)
		}
	}
	if isBound {
		all = append(all, bound.Node)
	}
	return all, revision, nil
}

// ownKeys returns an error if another host has one of the keys. Public keys are public, and of two
// hosts with one key others accept the one that they see first. A host that joined with the key of
// another one would take its place at every host that comes later.
func (j *Joiner) ownKeys(r *request) error {
	for e := range j.known.hosts.All() {
		if err := r.ownKeys(strings.TrimPrefix(e.Key, cluster.NodeTree), e.Value); err != nil {
			return err
		}
	}
	for name, c := range j.known.bound {
		if err := r.ownKeys(name, c.Value); err != nil {
			return err
		}
	}
	return nil
}

// ownKeys returns an error if a key is in the certificate of another host.
func (r *request) ownKeys(name string, certificate []byte) error {
	if name == r.Name {
		return nil
	}
	for _, key := range [][]byte{r.Key, r.WireGuardKey} {
		if bytes.Contains(certificate, []byte(cluster.Key(key).String())) {
			return fmt.Errorf("this host has a key of host %s: if it is a copy of that one, run "+
				"weir down, which removes the keys (not a file that [overlay] key names), and "+
				"join again; if there is no host %[1]s, run weir node remove %[1]s on the store "+
				"host", name)
		}
	}
	return nil
}
