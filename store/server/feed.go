package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// feed sends progress, and once the client follows, what changes.
func (c *conn) feed() {
	phase := c.server.beat.join()
	progress := c.server.beat.wait(phase)
	var at *position
	defer func() {
		if at != nil {
			c.server.state.leave()
		}
	}()
	var changed <-chan struct{}
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-progress:
			progress = c.server.beat.wait(phase)
			m := c.server.state.progress()
			m.PercentFull = c.server.PercentFull()
			if c.write(m.Encode()) != nil {
				return
			}
			continue
		case m := <-c.follow:
			begun, err := c.start(m)
			if err != nil {
				c.server.config.Log.Debug("following failed", "peer", c.peer.ID, "err", err)
				c.cancel()
				return
			}
			at = begun
			c.server.state.enter()
		case <-changed:
		}
		if at != nil {
			var err error
			if changed, err = c.deliver(at); err != nil {
				c.cancel()
				return
			}
		}
	}
}

// deliver sends what a connection has not got yet, and returns what to wait for.
func (c *conn) deliver(at *position) (<-chan struct{}, error) {
	for {
		segments, wait, lost := c.server.state.take(at)
		switch {
		case lost:
			if err := c.difference(at); err != nil {
				return nil, err
			}
			continue
		case wait != nil:
			return wait, nil
		}
		if err := c.send(segments, at); err != nil {
			return nil, err
		}
	}
}

// send sends segments, and forgets each when it is sent.
func (c *conn) send(segments []*segment, at *position) error {
	unsent := c.server.state.unsent
	unsent.hold(c, blocksOf(segments))
	for i, g := range segments {
		// Where it begins, a connection may have transactions of the segment already: the copy that
		// it was compared with had those of the open one.
		frame := g.frameWhole
		if at.exact {
			frame = g.frame
		}
		if err := c.write(frame()); err != nil {
			return err
		}
		at.exact = true
		segments[i] = nil
		unsent.written(c, &g.block)
	}
	return nil
}

// start decides how a client begins: it continues, or gets the difference.
func (c *conn) start(m wire.Follow) (*position, error) {
	at, ok, ahead := c.server.state.resume(m)
	if ahead {
		var err error
		if at, ok, err = c.catchUp(m); err != nil {
			return nil, err
		}
	}
	if ok {
		c.server.Counters.Continues.Add(1)
		if at.revision > 0 { // so that the client knows what its content is now
			return &at, c.write(wire.Batches(at.revision, nil))
		}
		return &at, nil
	}
	return &at, c.difference(&at)
}

// catchUp is for a client that is ahead of weir-store. If the store has its revision, weir-store is
// late: it must not take the client back. Otherwise the store was put back, and the client gets the
// difference.
func (c *conn) catchUp(m wire.Follow) (at position, ok bool, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.server.config.Progress)
	defer cancel()
	newest, err := c.server.config.Store.Read(ctx, c.server.config.Name+"cluster", 0)
	if err != nil {
		return at, false, c.wait(fmt.Sprintf("this weir-store cannot read the store: %v", err))
	}
	if newest.Revision < m.Revision {
		return at, false, nil
	}
	for {
		c.server.state.mu.Lock()
		published := c.server.state.published
		c.server.state.mu.Unlock()
		var ahead bool
		if at, ok, ahead = c.server.state.resume(m); !ahead {
			return at, ok, nil
		}
		select {
		case <-ctx.Done():
			return at, false, c.wait(fmt.Sprintf("this weir-store is at revision %d, the host "+
				"at %d", c.server.state.revision(), m.Revision))
		case <-published:
		}
	}
}

// wait sends the client away, and returns an error.
func (c *conn) wait(reason string) error {
	c.server.Counters.Waits.Add(1)
	pause := 200*time.Millisecond + time.Duration(rand.Int64N(int64(2*time.Second)))
	_ = c.write(wire.Wait{For: pause, Reason: reason}.Encode()) // it ends anyway
	return fmt.Errorf("%w: %s", store.ErrUnavailable, reason)
}

// difference asks for the client's digests, and sends what differs.
func (c *conn) difference(at *position) error {
	c.server.Counters.Differences.Add(1)
	if err := c.write(wire.Frame(wire.TypeAsk, nil)); err != nil {
		return err
	}
	var have *wire.Digests
	select {
	case <-c.ctx.Done():
		return c.ctx.Err()
	case <-time.After(c.server.config.Silence):
		return fmt.Errorf("%v does not answer", c.peer.ID)
	case have = <-c.digests:
	}
	c.server.beginDifference(c)
	defer c.server.endDifference(c)
	full := time.NewTimer(differenceQueue)
	defer full.Stop()
	select {
	case c.server.differences <- struct{}{}:
		defer func() { <-c.server.differences }()
	case <-full.C:
		return c.wait("many hosts begin at once")
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	if !c.server.mayDiffer(c) {
		return c.wait("this host has begun often")
	}
	parts, revision, next := c.server.state.difference(have)
	unsent := c.server.state.unsent
	unsent.hold(c, blocksOf(parts))
	for i, k := range parts {
		if err := c.write(k.frames()); err != nil {
			return err
		}
		parts[i] = nil
		unsent.written(c, &k.block)
	}
	*at = next
	return c.write(wire.CopyEnd(revision))
}

// beginDifference notes that a connection waits for its difference, or gets it. A certificate has
// one at a time, so that few stolen ones do not have all that are sent at once. The newest counts:
// a host that comes back may have left a connection behind that does not know it yet.
func (s *Server) beginDifference(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.differing[c.peer.Serial]; before != nil {
		s.Counters.Overtaken.Add(1)
		before.cancel()
	}
	s.differing[c.peer.Serial] = c
}

// mayDiffer reports whether a certificate has not had too many differences lately. In a store that
// changes, most of the copy is packed again for each, whether the client takes it or not.
func (s *Server) mayDiffer(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	often := s.began[c.peer.Serial]
	if often == nil {
		often = rate.NewLimiter(rate.Every(differenceEvery), differenceBurst)
		s.began[c.peer.Serial] = often
	}
	return often.Allow()
}

func (s *Server) endDifference(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.differing[c.peer.Serial] == c {
		delete(s.differing, c.peer.Serial)
	}
}
