package kernel

// The entries of another table are adopted in batches: the kernel adopts one while the next is
// read, on two CPUs where there are two. What a batch becomes is recorded in the order in which it
// was read.

// entriesAtOnce is how many entries a batch has at most. It takes the kernel less than a
// millisecond.
const entriesAtOnce = 1024

// target is where a state goes.
type target struct {
	link, rule uint32
	flowID     uint8
	liberal    bool // the rule's states are
}

// entryCopy is an entry on its way into our table.
type entryCopy struct {
	place       uint32 // in the other table
	tag         uint64
	to          target
	follows     bool // it has to be strict, and is copied until it has missed nothing
	translation bool
	partner     bool   // the other entry of the translation before it, which is recorded
	print, name uint64 // copies.print and copies.name
}

// batch is entries to adopt, and the calls that describe them.
type batch struct {
	calls   []weirCall
	entries []entryCopy
}

// batches are the one that is being filled and the one that the kernel adopts.
type batches struct {
	next, busy *batch
	adopted    chan error // nil while the kernel adopts none
}

// adopt appends an entry to the batch. reserve comes before it.
func (m *migration) adopt(c weirCall, i entryCopy) {
	m.next.calls = append(m.next.calls, c)
	m.next.entries = append(m.next.entries, i)
}

// reserve makes space in the batch for a state or a translation.
func (m *migration) reserve() error {
	if m.next == nil {
		m.next, m.busy = newBatch(), newBatch()
	}
	if len(m.next.calls)+2 <= entriesAtOnce {
		return nil
	}
	return m.send()
}

func newBatch() *batch {
	return &batch{calls: make([]weirCall, 0, entriesAtOnce),
		entries: make([]entryCopy, 0, entriesAtOnce)}
}

// send gives the batch to the kernel, and records what has become of the one before.
func (m *migration) send() error {
	adopted := m.adopted
	m.adopted = nil
	if adopted != nil {
		if err := <-adopted; err != nil {
			return err
		}
	}
	b, call := m.next, &m.engine.call
	m.next, m.busy = m.busy, m.next
	m.adopted = make(chan error, 1)
	go func(done chan<- error) { done <- call.adopt(b.calls) }(m.adopted)
	return m.next.recordIn(m)
}

// recordIn records what has become of a batch, and empties it.
func (b *batch) recordIn(m *migration) error {
	for i := range b.entries {
		if err := m.record(&b.entries[i], b.calls[i].Result); err != nil {
			return err
		}
	}
	b.calls, b.entries = b.calls[:0], b.entries[:0]
	return nil
}

// flush waits until all is adopted and recorded.
func (m *migration) flush() error {
	if m.next == nil {
		return nil
	}
	for range 2 { // what is filled, and what that displaces
		if err := m.send(); err != nil {
			return err
		}
	}
	return nil
}

// stop waits for the kernel, whatever has gone wrong.
func (m *migration) stop() error {
	if m.adopted == nil {
		return nil
	}
	return <-m.adopted
}
