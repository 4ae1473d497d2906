package proxy

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// clock knows when something last moved on a connection, in either direction.
// Deadlines are set when one has passed, never per packet.
type clock struct {
	idle time.Duration
	last atomic.Int64 // nanoseconds after start
	base time.Time
}

func newClock(idle time.Duration) *clock { return &clock{idle: idle, base: time.Now()} }

func (c *clock) touch() { c.last.Store(int64(time.Since(c.base))) }

// deadline is when the connection will have been idle for too long.
func (c *clock) deadline() time.Time {
	return c.base.Add(time.Duration(c.last.Load()) + c.idle)
}

func (c *clock) over() bool { return !time.Now().Before(c.deadline()) }

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// tunnel is a client's connection joined with the one that was made for it.
type tunnel struct {
	s     *Server
	c     *client
	far   net.Conn
	clock *clock
	open  atomic.Int32 // directions that still go
}

// relay joins the client with far, which it must own, and returns at once: two
// fresh goroutines with small stacks do the work. early is what the client said
// already.
func (s *Server) relay(c *client, far net.Conn, early []byte) {
	t := &tunnel{s: s, c: c, far: far, clock: newClock(s.IdleTimeout)}
	t.open.Store(2)
	if len(early) > 0 {
		far.SetWriteDeadline(t.clock.deadline())
		if _, err := far.Write(early); err != nil {
			c.Close()
			return
		}
		s.stats.bytesRelayed.Add(uint64(len(early)))
	}
	go t.direction(far, c.conn)
	go t.direction(c.conn, far)
}

// direction moves data one way until its end, passes the end on, and closes both
// connections when it was the last way or something broke.
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

// waits reports whether err is a deadline that passed although the other
// direction was busy; it sets the next one.
func (t *tunnel) waits(err error, dst, src net.Conn) bool {
	if !isTimeout(err) || t.clock.over() {
		return false
	}
	at := t.clock.deadline()
	src.SetReadDeadline(at)
	dst.SetWriteDeadline(at)
	return true
}

func (t *tunnel) moved(n int64) {
	t.clock.touch()
	t.s.stats.bytesRelayed.Add(uint64(n))
}

// copyLoop moves data through memory, where it cannot go through the kernel.
func (t *tunnel) copyLoop(dst, src net.Conn) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			w, err := dst.Write(b)
			b = b[w:]
			if w > 0 {
				t.moved(int64(w))
			}
			if err != nil && !t.waits(err, dst, src) {
				return err
			}
		}
		switch {
		case err == nil, t.waits(err, dst, src):
		case isEOF(err):
			return nil
		default:
			return err
		}
	}
}
