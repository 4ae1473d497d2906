package proxy

import "net"

// idleConn ends with a timeout when nothing has moved on it for too long, either way.
type idleConn struct {
	net.Conn
	clock *clock
	s     *Server
}

// Read waits as long as the clock allows.
func (c *idleConn) Read(b []byte) (int, error) {
	for {
		c.Conn.SetReadDeadline(c.clock.deadline())
		n, err := c.Conn.Read(b)
		if again := c.note(n, err); !again {
			return n, err
		}
	}
}

// Write waits as long as the clock allows.
func (c *idleConn) Write(b []byte) (written int, err error) {
	for {
		c.Conn.SetWriteDeadline(c.clock.deadline())
		n, err := c.Conn.Write(b[written:])
		written += n
		if again := c.note(n, err); !again || written == len(b) {
			return written, err
		}
	}
}

// note tells the clock, and reports whether a deadline passed only because it was that of an
// earlier time.
func (c *idleConn) note(n int, err error) (again bool) {
	if n > 0 {
		c.clock.touch()
	}
	if !isTimeout(err) {
		return false
	}
	if !c.clock.over() {
		return n == 0
	}
	c.s.stats.idleClosed.Add(1)
	return false
}
