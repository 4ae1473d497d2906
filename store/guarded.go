package store

import (
	"cmp"
	"maps"
	"slices"
)

// Guard decides which removals a Guarded copy holds back.
type Guard struct {
	// Kind returns what a key is counted as, such as "node" or "pods". Removals of "" are never
	// held back.
	Kind func(key string) string

	// Meant reports whether the store explains why a key is gone: stored has an entry, written by
	// one that may remove the key, which names it as removed.
	Meant func(stored *Copy, key string) bool
}

// Guarded is a copy of the store and, beside it, what the host enforces. Both are the same unless
// a step would remove more than a third of the keys of a kind, and does not explain that: then its
// additions are enforced and its removals are held until they are accepted or the keys come back.
// An emptied store, or an old backup, must not empty the tables of every host.
//
// A step is one batch, or the difference to a whole snapshot. While removals of a kind are held,
// further ones are added to them, so that a store that empties itself in small steps after a large
// one does not get further.
type Guarded struct {
	guard    Guard
	stored   *Copy
	enforced *Copy
	counts   map[string]int             // kind: enforced keys
	held     map[string]map[string]bool // kind: keys that are enforced and not stored
}

// NewGuarded returns a guarded copy that enforces a snapshot: what the host had on its disk.
func NewGuarded(g Guard, s Snapshot) *Guarded {
	d := &Guarded{guard: g, stored: NewCopy(s), enforced: NewCopy(s), counts: map[string]int{},
		held: map[string]map[string]bool{}}
	for _, e := range s.Entries {
		d.counts[g.Kind(e.Key)]++
	}
	return d
}

// Stored returns the copy that agrees with the store. The caller does not change it.
func (d *Guarded) Stored() *Copy { return d.stored }

// Enforced returns the copy that the host enforces. The caller does not change it. The revisions of
// its entries are not kept up to date when a value is written again: a transaction compares those
// of Stored.
func (d *Guarded) Enforced() *Copy { return d.enforced }

// Held returns the keys whose removal is held back, ordered.
func (d *Guarded) Held() (keys []string) {
	for _, of := range d.held {
		keys = slices.AppendSeq(keys, maps.Keys(of))
	}
	slices.Sort(keys)
	return keys
}

// HeldEntries returns what Held names, as the host enforces it: a start gives it to Hold.
func (d *Guarded) HeldEntries() (all []Entry) {
	for _, key := range d.Held() {
		if e, ok := d.enforced.Get(key); ok {
			all = append(all, e)
		}
	}
	return all
}

// Hold adds what the host enforced before a start and the store did not have: it is held as before.
func (d *Guarded) Hold(entries []Entry) {
	for _, e := range entries {
		if _, stored := d.stored.Get(e.Key); !stored {
			d.put(e)
			d.hold(d.guard.Kind(e.Key), []string{e.Key})
		}
	}
}

// Step applies a batch and returns what changes for the host. The cost follows the changes.
func (d *Guarded) Step(b Batch) []Change {
	return d.enforce(d.stored.Apply(b))
}

// Replace moves on to a whole snapshot and returns what changes for the host: the difference only.
func (d *Guarded) Replace(s Snapshot) []Change {
	stored := NewCopy(s)
	changes := d.stored.Diff(stored)
	d.stored = stored
	return d.enforce(changes)
}

// Accept removes what was held back and returns the removals: an administrator confirmed them.
func (d *Guarded) Accept() (changes []Change) {
	for _, key := range d.Held() {
		changes = append(changes, d.remove(key))
	}
	clear(d.held)
	return changes
}

func (d *Guarded) enforce(changes []Change) (now []Change) {
	removed := map[string][]string{}
	for _, ch := range changes {
		kind := d.guard.Kind(ch.Key)
		switch {
		case !ch.Deleted:
			delete(d.held[kind], ch.Key)
			if d.put(ch.Entry) {
				now = append(now, ch)
			}
		case kind == "" || d.guard.Meant(d.stored, ch.Key):
			now = append(now, d.remove(ch.Key))
		default:
			removed[kind] = append(removed[kind], ch.Key)
		}
	}
	// What was held may be explained by now. Nothing is held in normal operation.
	for _, key := range d.Held() {
		if kind := d.guard.Kind(key); d.guard.Meant(d.stored, key) {
			delete(d.held[kind], key)
			now = append(now, d.remove(key))
		}
	}
	for kind, keys := range removed {
		if 3*(len(keys)+len(d.held[kind])) > d.counts[kind] {
			d.hold(kind, keys)
			continue
		}
		for _, key := range keys {
			now = append(now, d.remove(key))
		}
	}
	slices.SortFunc(now, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	d.enforced.Revision = d.stored.Revision
	return now
}

func (d *Guarded) hold(kind string, keys []string) {
	if d.held[kind] == nil {
		d.held[kind] = map[string]bool{}
	}
	for _, key := range keys {
		d.held[kind][key] = true
	}
}

func (d *Guarded) put(e Entry) (changed bool) {
	before := d.enforced.Len()
	changed = d.enforced.put(e)
	d.counts[d.guard.Kind(e.Key)] += d.enforced.Len() - before
	return changed
}

func (d *Guarded) remove(key string) Change {
	if d.enforced.remove(key) {
		d.counts[d.guard.Kind(key)]--
	}
	return Change{Entry: Entry{Key: key}, Deleted: true}
}
