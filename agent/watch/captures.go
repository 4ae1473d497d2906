package watch

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/overlay"
)

const (
	// captureQueue is how many frames wait for a reader.
	captureQueue = 4096
	// captureRate is how many frames in a second a reader gets at most, and unless it asks for
	// fewer.
	captureRate = 20000
)

// captureBytes is how much of a frame is kept at most, by the kernel's engine (CAPTURE_BYTES in
// bpf/lib/consts.h) and here.
const captureBytes = 256

// Captures passes frames to the clients that capture.
type Captures struct {
	capture func(func(*firewall.Captured)) error // the kernel engine's
	on      atomic.Bool                          // at least one client captures

	mu   sync.Mutex           // its place in the lock order: agent/doc.go
	subs map[*captureSub]bool // guarded by mu
}

// captureSub is a client that captures.
type captureSub struct {
	frames chan firewall.Captured
	missed uint64 // guarded by Captures.mu; since the last frame
}

func (c *Captures) open() (*captureSub, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &captureSub{frames: make(chan firewall.Captured, captureQueue)}
	if c.subs == nil {
		c.subs = map[*captureSub]bool{}
	}
	c.subs[s] = true
	if len(c.subs) == 1 {
		if err := c.capture(c.pass); err != nil {
			delete(c.subs, s)
			return nil, fmt.Errorf("capture: %w", err)
		}
		c.on.Store(true)
	}
	return s, nil
}

func (c *Captures) close(s *captureSub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.subs, s); len(c.subs) == 0 {
		c.on.Store(false)
		c.capture(nil) // frames still under way are dropped
	}
}

// pass gives a frame to every client.
func (c *Captures) pass(f *firewall.Captured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := *f
	one.Data = append([]byte(nil), f.Data...)
	for s := range c.subs {
		select {
		case s.frames <- one:
		default:
			s.missed++
		}
	}
}

// WrapWorker returns a worker of the tunnel's engine that copies the packets to the clients.
func (c *Captures) WrapWorker(w overlay.Worker) overlay.Worker { return tunnelWorker{w, c} }

// tunnelWorker evaluates the packets of the tunnel and copies them to the clients that capture.
type tunnelWorker struct {
	overlay.Worker
	captures *Captures
}

// EvaluateBatch implements overlay.Worker.
func (w tunnelWorker) EvaluateBatch(in *firewall.Input, packets [][]byte, out []firewall.Verdict) {
	w.Worker.EvaluateBatch(in, packets, out)
	if !w.captures.on.Load() {
		return
	}
	for i, p := range packets {
		own := overlay.Quotable(in.Hook, p, in.Segments[i])
		w.captures.pass(&firewall.Captured{Time: in.Now, Hook: in.Hook, Verdict: out[i],
			Length: uint32(len(p)), Data: own[:min(len(own), captureBytes)]})
	}
}

// takeMissed returns how many frames a reader has missed since the last call.
func (c *Captures) takeMissed(s *captureSub) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := s.missed
	s.missed = 0
	return n
}
