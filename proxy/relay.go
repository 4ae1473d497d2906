package proxy

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// clock records when data last moved on a connection, in either direction. A new deadline is set
// only when the previous one has passed, never per packet.
type clock struct {
	idle time.Duration
	last atomic.Int64 // nanoseconds after base
	base time.Time
}

func newClock(idle time.Duration) *clock { return &clock{idle: idle, base: time.Now()} }

func (c *clock) touch() { c.last.Store(int64(time.Since(c.base))) }

// deadline returns when the connection will have been idle for too long.
func (c *clock) deadline() time.Time {
	return c.base.Add(time.Duration(c.last.Load()) + c.idle)
}

func (c *clock) over() bool { return !time.Now().Before(c.deadline()) }

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// tunnel joins a client's connection with the one to its destination.
type tunnel struct {
	s     *Server
	c     *client
	clock *clock
	open  atomic.Int32 // directions that have not ended
}

// relay joins the client with target, which must be attached to it, and returns at once: two new
// goroutines with small stacks do the work. early is what the client has sent already.
func (s *Server) relay(c *client, target net.Conn, early []byte) {
	t := &tunnel{s: s, c: c, clock: newClock(s.IdleTimeout)}
	t.open.Store(2)
	if len(early) > 0 {
		target.SetWriteDeadline(t.clock.deadline())
		if _, err := target.Write(early); err != nil {
			c.Close()
			return
		}
		s.stats.bytesRelayed.Add(uint64(len(early)))
	}
	go t.direction(target, c.conn)
	go t.direction(c.conn, target)
}

// direction moves data in one direction until its end and passes the end on. It closes both
// connections on an error, or if it is the last direction.
func (t *tunnel) direction(dst, src net.Conn) {
	src.SetReadDeadline(t.clock.deadline())
	dst.SetWriteDeadline(t.clock.deadline())
	err := t.move(dst, src)
	if err == nil {
		if half, ok := dst.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			err = net.ErrClosed
		}
	}
	if isTimeout(err) {
		t.s.stats.idleClosed.Add(1)
	}
	if t.open.Add(-1) == 0 || err != nil {
		t.c.Close()
	}
}

// extend reports whether err is a deadline that passed although data moved in the other direction.
// Then it sets the next deadline.
func (t *tunnel) extend(err error, dst, src net.Conn) bool {
	if !isTimeout(err) || t.clock.over() {
		return false
	}
	at := t.clock.deadline()
	src.SetReadDeadline(at)
	dst.SetWriteDeadline(at)
	return true
}

// count records bytes that have moved.
func (t *tunnel) count(n int64) {
	t.clock.touch()
	t.s.stats.bytesRelayed.Add(uint64(n))
}

// copyLoop moves data through memory, for connections that cannot be spliced.
func (t *tunnel) copyLoop(dst, src net.Conn) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			w, err := dst.Write(b)
			b = b[w:]
			if w > 0 {
				t.count(int64(w))
			}
			if err != nil && !t.extend(err, dst, src) {
				return err
			}
		}
		switch {
		case err == nil, t.extend(err, dst, src):
		case isEOF(err):
			return nil
		default:
			return err
		}
	}
}
