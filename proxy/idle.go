package proxy

import "net"

// idleConn fails with a timeout when nothing has moved on it for too long, in either direction.
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
		if again := c.account(n, err); !again {
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
		if again := c.account(n, err); !again || written == len(b) {
			return written, err
		}
	}
}

// account updates the clock. It reports whether the deadline that passed was out of date, so that
// the operation has to be repeated.
func (c *idleConn) account(n int, err error) (again bool) {
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
