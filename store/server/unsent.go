package server

import (
	"sync"
	"time"
)

// block is what connections write as a whole: an answer to a read, or what is packed once for all
// of them. Its fields are guarded by unsent.mu.
type block struct {
	bytes int // 0 until it is packed
	users int // connections that have not written it
}

func (b *block) asBlock() *block { return b }

// blocksOf returns the blocks of parts or of segments.
func blocksOf[T interface{ asBlock() *block }](all []T) []*block {
	blocks := make([]*block, len(all))
	for i, one := range all {
		blocks[i] = one.asBlock()
	}
	return blocks
}

// unsent bounds the memory of what connections take slowly. Copy and log are bounded, but a
// connection keeps its blocks until it has written them, when the store has others by then. In a
// store that changes, each slow one would keep almost a copy of its own. Beyond the bound the
// slowest connection ends. Its host comes back, and gets what differs by then.
type unsent struct {
	mu   sync.Mutex
	most int // bytes
	size int // of the blocks that have users, each once
	of   map[*conn]*unwritten
}

// unwritten is what a connection has to write.
type unwritten struct {
	began  time.Time
	wrote  int64 // of the connection, then
	blocks map[*block]bool
}

func newUnsent(most int) *unsent { return &unsent{most: most, of: map[*conn]*unwritten{}} }

// hold notes what a connection is about to write.
func (u *unsent) hold(c *conn, blocks []*block) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[c] == nil {
		u.of[c] = &unwritten{time.Now(), c.wrote.Load(), map[*block]bool{}}
	}
	for _, b := range blocks {
		if u.of[c].blocks[b] {
			continue
		}
		u.of[c].blocks[b] = true
		if b.users++; b.users == 1 {
			u.size += b.bytes
		}
	}
	u.boundLocked()
}

// packed notes the size of a block.
func (u *unsent) packed(b *block, size int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if b.bytes = size; b.users > 0 {
		u.size += size
		u.boundLocked()
	}
}

// written notes that a connection has written a block.
func (u *unsent) written(c *conn, b *block) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if w := u.of[c]; w != nil && w.blocks[b] { // it may have been ended
		u.dropLocked(w, b)
		if len(w.blocks) == 0 {
			delete(u.of, c) // what it was slow with is over
		}
	}
}

// release notes the end of a connection.
func (u *unsent) release(c *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.releaseLocked(c)
}

func (u *unsent) releaseLocked(c *conn) {
	if w := u.of[c]; w != nil {
		for b := range w.blocks {
			u.dropLocked(w, b)
		}
		delete(u.of, c)
	}
}

func (u *unsent) dropLocked(w *unwritten, b *block) {
	delete(w.blocks, b)
	if b.users--; b.users == 0 {
		u.size -= b.bytes
	}
}

// boundLocked ends the slowest connections while all keep too much.
func (u *unsent) boundLocked() {
	for now := time.Now(); u.size > u.most && len(u.of) > 1; {
		var slowest *conn
		least := 0.0
		for c, w := range u.of {
			if r := w.rate(c, now); slowest == nil || r < least {
				slowest, least = c, r
			}
		}
		u.releaseLocked(slowest)
		slowest.server.Counters.Slow.Add(1)
		slowest.server.config.Log.Info("a connection was ended: it takes what it gets too slowly, "+
			"and weir-store has no memory for it", "peer", slowest.peer.ID)
		slowest.cancel()
	}
}

// headStart is what a connection counts as having written: it is not slow because it has just
// begun.
const headStart = 1 << 20

// rate is how fast a connection writes, in bytes a second.
func (w *unwritten) rate(c *conn, now time.Time) float64 {
	took := now.Sub(w.began) + time.Millisecond
	return float64(headStart+c.wrote.Load()-w.wrote) / took.Seconds()
}
