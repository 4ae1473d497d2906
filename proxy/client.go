package proxy

import (
	"net"
	"sync"
)

// client is the connection of a client, with everything opened for it. Close closes all of that.
type client struct {
	s    *Server
	conn net.Conn
	once sync.Once

	mu       sync.Mutex
	attached []interface{ Close() error } // guarded by mu
	closed   bool                         // guarded by mu
}

// admit serves a client, or turns it away.
func (s *Server) admit(conn net.Conn) {
	c := &client{s: s, conn: conn}
	s.mu.Lock()
	full := len(s.clients) >= s.MaxClients
	if full || s.closing {
		s.mu.Unlock()
		s.stats.turnedAway.Add(1)
		s.limitLog.Do(func() {
			s.Log.Warn("clients are turned away", "client", conn.RemoteAddr(),
				"limit", s.MaxClients, "so far", s.stats.turnedAway.Load())
		})
		conn.Close()
		return
	}
	s.clients[c] = struct{}{}
	s.wait.Add(1)
	s.mu.Unlock()
	s.stats.accepted.Add(1)
	s.stats.clients.Add(1)
	go s.detect(c)
}

// attach makes Close close other too. If c is closed already, it closes other at once and returns
// false.
func (c *client) attach(other interface{ Close() error }) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		other.Close()
		return false
	}
	c.attached = append(c.attached, other)
	return true
}

// Close closes the connection and everything attached to it.
func (c *client) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		attached := c.attached
		c.mu.Unlock()
		c.conn.Close()
		for _, o := range attached {
			o.Close()
		}
		c.s.mu.Lock()
		delete(c.s.clients, c)
		c.s.mu.Unlock()
		c.s.stats.clients.Add(^uint64(0))
		c.s.wait.Done()
	})
	return nil
}
