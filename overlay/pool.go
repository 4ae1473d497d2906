package overlay

import "sync"

// pool keeps the memory of calls for reuse. Unlike a sync.Pool, the garbage collector never empties
// it, so that the packet path allocates nothing. Users are few: one for each peer.
type pool[T any] struct {
	newItem func() *T
	mu      sync.Mutex
	idle    []*T
}

const poolLimit = 64

func (p *pool[T]) get() *T {
	p.mu.Lock()
	if k := len(p.idle); k > 0 {
		x := p.idle[k-1]
		p.idle = p.idle[:k-1]
		p.mu.Unlock()
		return x
	}
	p.mu.Unlock()
	return p.newItem()
}

func (p *pool[T]) put(x *T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) < poolLimit {
		p.idle = append(p.idle, x)
	}
}
