package udp

import "sync"

// pool keeps rings for reuse. The garbage collector does not empty it as it does a sync.Pool, so a
// Conn in use allocates nothing. The mutex is held for a few instructions.
type pool struct {
	mu   sync.Mutex
	idle []*ring
}

// poolLimit is how many idle rings are kept: about the number of goroutines that share a direction
// of a socket.
const poolLimit = 16

func (p *pool) get(c *Conn) *ring {
	p.mu.Lock()
	if k := len(p.idle); k > 0 {
		r := p.idle[k-1]
		p.idle = p.idle[:k-1]
		p.mu.Unlock()
		return r
	}
	p.mu.Unlock()
	r := newRing(c)
	r.pool = p
	return r
}

func (p *pool) put(r *ring) {
	p.mu.Lock()
	if len(p.idle) < poolLimit {
		p.idle = append(p.idle, r)
	}
	p.mu.Unlock()
}
