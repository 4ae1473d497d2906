package proxy

import "net"

// idleConn is a connection to the server of plain requests. It fails with a timeout if nothing has
// moved for too long, on it or on the connection of its client.
type idleConn struct {
	net.Conn
	clock *clock // also of the client's connection
	s     *Server
}

// Read waits as long as the clock allows.
func (c *idleConn) Read(b []byte) (int, error) {
	for {
		c.Conn.SetReadDeadline(c.clock.deadline())
		n, err := c.Conn.Read(b)
		if n > 0 {
			c.clock.touch()
			c.s.stats.bytesRelayed.Add(uint64(n))
		}
		if n > 0 || !isTimeout(err) {
			return n, err
		}
		if c.clock.over() {
			c.s.stats.idleClosed.Add(1)
			return n, err
		}
	}
}

// Write waits as long as the clock allows.
func (c *idleConn) Write(b []byte) (int, error) {
	n, err := c.s.write(c.Conn, c.clock, b)
	c.s.stats.bytesRelayed.Add(uint64(n))
	return n, err
}

// write writes to a connection as long as the clock allows. The time counts from now: before, there
// was nothing to write.
func (s *Server) write(conn net.Conn, clock *clock, b []byte) (written int, err error) {
	clock.touch()
	for {
		conn.SetWriteDeadline(clock.deadline())
		n, err := conn.Write(b[written:])
		if written += n; n > 0 {
			clock.touch()
		}
		if !isTimeout(err) {
			return written, err
		}
		if clock.over() {
			s.stats.idleClosed.Add(1)
			return written, err
		}
	}
}
