package proxy

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// client is the connection of a client, with everything opened for it. Close closes all of that.
type client struct {
	s      *Server
	conn   net.Conn
	ctx    context.Context // until Close
	cancel context.CancelFunc
	once   sync.Once
	// its place in Server.unproven, nil if it has none; guarded by Server.mu
	unproven *list.Element

	mu       sync.Mutex
	attached []interface{ Close() error } // guarded by mu
	closed   bool                         // guarded by mu
}

func newClient(s *Server, conn net.Conn) *client {
	c := &client{s: s, conn: conn}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// admit serves a client, or turns it away.
func (s *Server) admit(conn net.Conn) {
	c := newClient(s, conn)
	if !s.enter(c) {
		s.turnAway(conn)
		c.cancel()
		conn.Close()
		return
	}
	go s.detect(c)
}

// enter gives a client a place, and reports whether there is one. If all are taken, the oldest
// client without a password loses its place. Otherwise one host without a password could take all
// of them by connecting again and again.
func (s *Server) enter(c *client) bool {
	for {
		s.mu.Lock()
		if s.closing {
			s.mu.Unlock()
			return false
		}
		if len(s.clients) < s.MaxClients {
			s.clients[c] = struct{}{}
			if len(s.Users) > 0 {
				c.unproven = s.unproven.PushBack(c)
			}
			s.wait.Add(1)
			s.stats.accepted.Add(1)
			s.stats.clients.Add(1)
			s.mu.Unlock()
			return true
		}
		oldest := s.unproven.Front()
		s.mu.Unlock()
		if oldest == nil {
			return false
		}
		other := oldest.Value.(*client)
		s.turnAway(other.conn)
		other.Close()
	}
}

// turnAway counts a client that is turned away.
func (s *Server) turnAway(conn net.Conn) {
	s.stats.turnedAway.Add(1)
	s.limitLog.Do(func() {
		s.Log.Warn("clients are turned away", "client", conn.RemoteAddr(),
			"limit", s.MaxClients, "so far", s.stats.turnedAway.Load())
	})
}

// proved records that the client has shown its password, so it keeps its place.
func (c *client) proved() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.leaveUnprovenLocked()
}

func (c *client) leaveUnprovenLocked() {
	if c.unproven != nil {
		c.s.unproven.Remove(c.unproven)
		c.unproven = nil
	}
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
		c.cancel()
		c.conn.Close()
		for _, o := range attached {
			o.Close()
		}
		c.s.mu.Lock()
		delete(c.s.clients, c)
		c.leaveUnprovenLocked()
		c.s.mu.Unlock()
		c.s.stats.clients.Add(^uint64(0))
		c.s.wait.Done()
	})
	return nil
}
