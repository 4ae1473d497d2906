package client

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// maxStep bounds the memory of one step: a weir-store that is not what it should be must not fill a
// host's memory.
const maxStep = store.MaxCopy

// entryCost is about what an entry or a change takes in memory beside its key and its value, of
// which both may have no bytes.
const entryCost = 256

// inbox has what arrived and was not applied yet. It is bounded by the size of the store: batches
// are merged by key. So a host that is slow for a while does not stop its connection.
type inbox struct {
	changed chan struct{} // has one value if there are news

	mu     sync.Mutex
	now    news
	copied difference // what arrives now
	open   *merged    // a batch that has more
	size   int        // of both
}

// news is what arrived: first the difference, then the batch. When weir-store asks for digests,
// everything before was applied.
type news struct {
	difference *difference
	batch      *merged
	asked      bool
}

// difference is buckets, whole.
type difference struct {
	revision int64
	buckets  map[int][]store.Entry
}

// merged is one or several batches as one. A single one, which is what a host gets that keeps up,
// stays as it came, if it is ordered by key as it should be.
type merged struct {
	revision int64
	single   []wire.Change    // ordered
	changes  map[string]chain // nil: single
}

// chain is the last change of a key. Deltas are of the value that it has, one after the other; if
// it has none, of that of the copy.
type chain struct {
	store.Change
	deltas []wire.Delta
	whole  bool // it has a value
}

func newInbox() *inbox { return &inbox{changed: make(chan struct{}, 1)} }

// take returns the news and forgets them.
func (in *inbox) take() news {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := in.now
	in.now = news{}
	in.size = 0
	return n
}

func (in *inbox) wakeLocked() {
	select {
	case in.changed <- struct{}{}:
	default:
	}
}

var (
	errLarge = errors.New("a step is too large")
	errOrder = errors.New("weir-store sent a frame out of turn")
)

func (in *inbox) grow(n int) error {
	if in.size += n; in.size > maxStep {
		return errLarge
	}
	return nil
}

func (in *inbox) ask() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.now.asked || in.open != nil || in.copied.buckets != nil {
		return errOrder
	}
	in.now.asked = true
	in.wakeLocked()
	return nil
}

// part takes a part of a difference. Its frame does not count: nothing of that is kept, and a copy
// of store.MaxCopy has to be possible as one difference.
func (in *inbox) part(m wire.Copy) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	// What was before the question for digests was applied when they were sent.
	if in.now.asked || in.now.batch != nil || in.now.difference != nil || in.open != nil {
		return errOrder
	}
	if in.copied.buckets == nil {
		in.copied.buckets = map[int][]store.Entry{}
	}
	size := 0
	for _, b := range m.Buckets {
		in.copied.buckets[b.Index] = append(in.copied.buckets[b.Index], b.Entries...)
		for _, e := range b.Entries {
			size += entryCost + len(e.Key) + len(e.Value)
		}
	}
	if err := in.grow(size); err != nil || m.More {
		return err
	}
	in.now.difference = &difference{m.Revision, in.copied.buckets}
	in.copied = difference{}
	in.wakeLocked()
	return nil
}

// batch takes a batch, or a part of one.
func (in *inbox) batch(m wire.Batch) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.now.asked || in.copied.buckets != nil {
		return errOrder
	}
	size := 0
	for _, ch := range m.Changes {
		size += entryCost + len(ch.Key) + len(ch.Value) + len(ch.Delta)
	}
	if err := in.grow(size); err != nil {
		return err
	}
	switch {
	case in.open != nil:
		in.open.add(m.Changes)
	case ascending(m.Changes):
		in.open = &merged{single: m.Changes}
	default: // it has a key twice, perhaps
		in.open = &merged{}
		in.open.add(m.Changes)
	}
	in.open.revision = m.Revision
	if m.More {
		return nil
	}
	if in.now.batch == nil {
		in.now.batch = in.open
	} else {
		in.now.batch.append(in.open)
		in.now.batch.revision = in.open.revision
	}
	in.open = nil
	in.wakeLocked()
	return nil
}

// ascending reports whether changes are ordered by key, each key once.
func ascending(changes []wire.Change) bool {
	for i := 1; i < len(changes); i++ {
		if changes[i-1].Key >= changes[i].Key {
			return false
		}
	}
	return true
}

// add adds later changes.
func (m *merged) add(next []wire.Change) {
	if m.changes == nil {
		m.changes = make(map[string]chain, len(m.single)+len(next))
		for _, ch := range m.single {
			m.changes[ch.Key] = chain{}.then(ch)
		}
		m.single = nil
	}
	for _, ch := range next {
		m.changes[ch.Key] = m.changes[ch.Key].then(ch)
	}
}

// append adds a later batch.
func (m *merged) append(next *merged) {
	m.add(next.single)
	for key, later := range next.changes {
		if !later.whole && !later.Deleted {
			c := m.changes[key]
			later.deltas = append(c.deltas, later.deltas...)
			later.Value, later.whole, later.Deleted = c.Value, c.whole, c.Deleted
		}
		m.changes[key] = later
	}
}

// then returns a chain with one more change.
func (c chain) then(ch wire.Change) chain {
	if ch.Delta == nil {
		return chain{Change: ch.Change, whole: !ch.Deleted}
	}
	c.Key, c.Revision = ch.Key, ch.Revision
	c.deltas = append(c.deltas, ch.Delta)
	return c
}

// end returns what the chain makes of a copy.
func (c chain) end(of *store.Copy) (store.Change, error) {
	ch := c.Change
	if len(c.deltas) > 0 && !c.whole && !c.Deleted {
		was, _ := of.Get(c.Key)
		ch.Value = was.Value
	}
	for _, e := range c.deltas {
		var err error
		if ch.Value, err = e.Apply(ch.Value); err != nil {
			return ch, fmt.Errorf("%s: %w", c.Key, err)
		}
		ch.Deleted = false
	}
	return ch, nil
}

// batch returns the changes of a copy, ordered.
func (m *merged) batch(of *store.Copy) (store.Batch, error) {
	b := store.Batch{Revision: m.revision,
		Changes: make([]store.Change, 0, len(m.single)+len(m.changes))}
	for _, ch := range m.single {
		end, err := chain{}.then(ch).end(of)
		if err != nil {
			return b, err
		}
		b.Changes = append(b.Changes, end)
	}
	for _, c := range m.changes {
		end, err := c.end(of)
		if err != nil {
			return b, err
		}
		b.Changes = append(b.Changes, end)
	}
	if m.changes != nil {
		slices.SortFunc(b.Changes, func(x, y store.Change) int { return cmp.Compare(x.Key, y.Key) })
	}
	return b, nil
}
