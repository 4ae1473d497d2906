package server

import (
	"context"
	"sync"
	"time"
)

// phases is how many parts the connections have as far as progress concerns them. Those of one part
// get it together, which costs less than one by one, and not all at once.
const phases = 8

// beat wakes the connections of one phase after the other, each once in a period.
type beat struct {
	mu   sync.Mutex
	next [phases]chan struct{} // closed when the phase's time has come
	last int
}

func newBeat() *beat {
	b := &beat{}
	for i := range b.next {
		b.next[i] = make(chan struct{})
	}
	return b
}

// join returns the phase of a new connection.
func (b *beat) join() (phase int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	return b.last % phases
}

// wait returns what is closed at the next time of a phase.
func (b *beat) wait(phase int) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next[phase]
}

// run beats until the context ends.
func (b *beat) run(ctx context.Context, period time.Duration) {
	tick := time.NewTicker(period / phases)
	defer tick.Stop()
	for phase := 0; ; phase = (phase + 1) % phases {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.mu.Lock()
		close(b.next[phase])
		b.next[phase] = make(chan struct{})
		b.mu.Unlock()
	}
}
