package store

import (
	"bytes"
	"cmp"
	"fmt"
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

	// Demands reports whether removals of a kind that are not explained are held, however few.
	// nil: of none.
	Demands func(kind string) bool
}

// Guarded is a copy of the store and, beside it, what the host still enforces and the store does
// not have any more. That is nothing unless a step would remove more than a third of the keys of a
// kind, or any of a kind that demands it, without an explanation. Then its additions are enforced.
// Its removals are held until they are accepted or the keys come back. An emptied store, or an old
// backup, must not empty the tables of every host.
//
// A step is one batch, or the difference to a whole snapshot. While removals of a kind are held,
// further ones are added to them. So a store that empties itself in small steps after a large one
// does not get further.
type Guarded struct {
	guard  Guard
	stored *Copy
	counts map[string]int              // kind: enforced keys
	held   map[string]map[string]Entry // kind, key: what is enforced and not stored
}

// NewGuarded returns a guarded copy that enforces a snapshot: what the host had on its disk.
func NewGuarded(g Guard, s Snapshot) *Guarded {
	d := &Guarded{guard: g, stored: NewCopy(s), counts: map[string]int{},
		held: map[string]map[string]Entry{}}
	for _, e := range s.Entries {
		d.counts[g.Kind(e.Key)]++
	}
	return d
}

// Stored returns the copy that agrees with the store. The caller does not change it.
func (d *Guarded) Stored() *Copy { return d.stored }

// Enforced returns the entries that the host enforces, ordered by key: those that are stored and
// those that are held.
func (d *Guarded) Enforced() Snapshot {
	s := d.stored.Snapshot()
	if held := d.HeldEntries(); len(held) > 0 {
		s.Entries = append(s.Entries, held...)
		slices.SortFunc(s.Entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	}
	return s
}

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
	for _, of := range d.held {
		all = slices.AppendSeq(all, maps.Values(of))
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// Hold adds what the host enforced before a start and the store did not have: it is held as before.
func (d *Guarded) Hold(entries []Entry) {
	for _, e := range entries {
		if _, stored := d.stored.Get(e.Key); stored {
			continue
		}
		kind := d.guard.Kind(e.Key)
		if _, held := d.held[kind][e.Key]; !held {
			d.counts[kind]++
		}
		d.hold(kind, e)
	}
}

// LargeError means that a copy would be larger than a host permits.
type LargeError struct{ Size, Limit int }

func (e *LargeError) Error() string {
	return fmt.Sprintf("the copy of the store would take %d MiB, with what is held: at most %d "+
		"are possible", e.Size>>20, e.Limit>>20)
}

// Fits returns a *LargeError if what is stored and what is held would take more than limit bytes
// after a batch, unless the batch makes that smaller. What the batch deletes counts as far as it
// would be held. It changes nothing.
func (d *Guarded) Fits(b Batch, limit int) error {
	more := 0
	for _, ch := range b.Changes {
		if ch.Deleted {
			continue
		}
		more += ch.Entry.Cost()
		if had, stored := d.stored.Get(ch.Key); stored {
			more -= had.Cost()
		}
	}
	if more <= 0 {
		return nil
	}
	before := d.size()
	if before+more <= limit { // also if all that it deletes is held
		return nil
	}
	if after := d.sizeAfter(b); after > limit && after > before {
		return &LargeError{after, limit}
	}
	return nil
}

// FitsAccepted reports whether what is stored after a batch takes at most limit bytes. What is held
// does not count.
func (d *Guarded) FitsAccepted(b Batch, limit int) bool {
	size := d.stored.size
	for _, ch := range b.Changes {
		if had, stored := d.stored.Get(ch.Key); stored {
			size -= had.Cost()
		}
		if !ch.Deleted {
			size += ch.Entry.Cost()
		}
	}
	return size <= limit
}

// size is what is stored and what is held, in bytes.
func (d *Guarded) size() int {
	size := d.stored.size
	for _, of := range d.held {
		for _, e := range of {
			size += e.Cost()
		}
	}
	return size
}

// FitsWhole is Fits for a whole snapshot, as Replace takes it.
func (d *Guarded) FitsWhole(s Snapshot, limit int) error {
	size := 0
	for _, e := range s.Entries {
		size += e.Cost()
	}
	for _, of := range d.held {
		for _, e := range of {
			size += e.Cost()
		}
	}
	if size > limit && size > d.size() {
		return &LargeError{size, limit}
	}
	return nil
}

// sizeAfter returns what size would be after a batch. It makes the step and takes it back.
func (d *Guarded) sizeAfter(b Batch) int {
	revision, counts, held := d.stored.Revision, maps.Clone(d.counts), maps.Clone(d.held)
	for kind, of := range held {
		held[kind] = maps.Clone(of)
	}
	undo := make([]Change, 0, len(b.Changes))
	for _, ch := range b.Changes {
		had, stored := d.stored.Get(ch.Key)
		had.Key = ch.Key
		undo = append(undo, Change{Entry: had, Deleted: !stored})
	}
	d.Step(b)
	after := d.size()
	for _, ch := range slices.Backward(undo) {
		if ch.Deleted {
			d.stored.remove(ch.Key)
		} else {
			d.stored.put(ch.Entry)
		}
	}
	d.stored.Revision, d.counts, d.held = revision, counts, held
	return after
}

// Step applies a batch and returns what changes for the host. The cost follows the changes.
func (d *Guarded) Step(b Batch) []Change {
	now := make([]Change, 0, len(b.Changes))
	var removed []Entry
	for _, ch := range b.Changes {
		if ch.Deleted {
			if was, ok := d.stored.remove(ch.Key); ok {
				removed = append(removed, was)
			}
			continue
		}
		before := d.stored.Len()
		if d.stored.put(ch.Entry) && (d.stored.Len() == before || d.add(ch.Entry)) {
			now = append(now, ch)
		}
	}
	d.stored.Revision = b.Revision
	return d.enforce(now, removed)
}

// Replace moves on to a whole snapshot and returns what changes for the host: the difference only.
func (d *Guarded) Replace(s Snapshot) (now []Change) {
	before, stored := d.stored, NewCopy(s)
	var removed []Entry
	for _, ch := range before.Diff(stored) {
		was, had := before.Get(ch.Key)
		if ch.Deleted {
			removed = append(removed, was)
		} else if had || d.add(ch.Entry) {
			now = append(now, ch)
		}
	}
	d.stored = stored
	return d.enforce(now, removed)
}

// Accept applies the held removals, which an administrator has confirmed, and returns them.
func (d *Guarded) Accept() (changes []Change) {
	for _, key := range d.Held() {
		changes = append(changes, d.removed(key))
	}
	clear(d.held)
	return changes
}

// Forget drops what is held of some keys. It changes nothing for the host until its next start,
// which does not get them back.
func (d *Guarded) Forget(keys ...string) {
	for _, key := range keys {
		kind := d.guard.Kind(key)
		if _, held := d.held[kind][key]; held {
			delete(d.held[kind], key)
			d.counts[kind]--
		}
	}
}

// add takes an entry whose key was not stored, and reports whether it changes what is enforced.
func (d *Guarded) add(e Entry) (changed bool) {
	kind := d.guard.Kind(e.Key)
	if was, held := d.held[kind][e.Key]; held {
		delete(d.held[kind], e.Key)
		return !bytes.Equal(was.Value, e.Value)
	}
	d.counts[kind]++
	return true
}

// enforce decides about what is not stored any more, and returns what changes for the host: now,
// and the removals that are not held.
func (d *Guarded) enforce(now []Change, gone []Entry) []Change {
	var doubtful map[string][]Entry
	for _, e := range gone {
		kind := d.guard.Kind(e.Key)
		if kind == "" || d.guard.Meant(d.stored, e.Key) {
			now = append(now, d.removed(e.Key))
			continue
		}
		if doubtful == nil {
			doubtful = map[string][]Entry{}
		}
		doubtful[kind] = append(doubtful[kind], e)
	}
	// What was held may be explained by now. Nothing is held in normal operation.
	for _, of := range d.held {
		for key := range of {
			if d.guard.Meant(d.stored, key) {
				delete(of, key)
				now = append(now, d.removed(key))
			}
		}
	}
	for kind, entries := range doubtful {
		hold := 3*(len(entries)+len(d.held[kind])) > d.counts[kind] ||
			d.guard.Demands != nil && d.guard.Demands(kind)
		for _, e := range entries {
			if hold {
				d.hold(kind, e)
			} else {
				now = append(now, d.removed(e.Key))
			}
		}
	}
	byKey := func(a, b Change) int { return cmp.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(now, byKey) {
		slices.SortFunc(now, byKey)
	}
	return now
}

func (d *Guarded) hold(kind string, e Entry) {
	if d.held[kind] == nil {
		d.held[kind] = map[string]Entry{}
	}
	d.held[kind][e.Key] = e
}

// removed counts a key that is enforced no more, and returns its change.
func (d *Guarded) removed(key string) Change {
	d.counts[d.guard.Kind(key)]--
	return Change{Entry: Entry{Key: key}, Deleted: true}
}
