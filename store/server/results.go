package server

import (
	"errors"
	"sync/atomic"

	"github.com/weirnet/weir/store"
)

// Results counts requests by their result: the error that it wraps, nil for what was done.
type Results [len(resultKinds)]atomic.Uint64

// resultKinds are the results that count by themselves. What is none of them counts as unavailable.
var resultKinds = [...]struct {
	name string
	err  error
}{{"done", nil}, {"conflict", store.ErrConflict}, {"denied", store.ErrPermission},
	{"invalid", store.ErrInvalid}, {"compacted", store.ErrCompacted},
	{"unavailable", store.ErrUnavailable}}

func (r *Results) add(err error) {
	for i, kind := range resultKinds {
		if kind.err == nil && err == nil || kind.err != nil && errors.Is(err, kind.err) {
			r[i].Add(1)
			return
		}
	}
	r[len(r)-1].Add(1)
}

// All calls yield with each result and how often it was.
func (r *Results) All(yield func(result string, count uint64) bool) {
	for i := range r {
		if !yield(resultKinds[i].name, r[i].Load()) {
			return
		}
	}
}

// Gauges are what a server has now.
type Gauges struct {
	Connections, Followers, Watches int
	Failing                         bool // the watch on the store ended and did not continue yet
	// CopyFull is the size of the copy, as a part of what is possible. Above 1 the store is not
	// followed.
	CopyFull float64
}

// Gauges returns what the server has now.
func (s *Server) Gauges() (g Gauges) {
	s.mu.Lock()
	g.Connections = len(s.conns)
	for c := range s.conns {
		g.Watches += c.watching()
	}
	s.mu.Unlock()
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	g.Followers, g.Failing = s.state.followers, s.state.failing
	size := max(int64(s.state.copy.Size()), s.large.Load())
	g.CopyFull = float64(size) / float64(s.config.MaxCopy)
	return g
}

func (c *conn) watching() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watches)
}
