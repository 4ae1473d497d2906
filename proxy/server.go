package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Defaults of a Server.
const (
	DefaultConnectTimeout   = 30 * time.Second
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultIdleTimeout      = 30 * time.Minute
	DefaultMaxClients       = 16384
	DefaultMaxSessions      = 4096
)

// Server is a proxy. Its fields must not change once it serves. A zero duration or
// count means the default.
type Server struct {
	// Dial makes the connections, to "tcp" or "udp" and host:port as the client
	// wrote it. It must not be nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Users maps names to bcrypt hashes of their passwords. If it is empty, no one is asked for
	// either.
	Users map[string]string
	// LocalTargets lets clients of other hosts reach what ControlContext refuses them otherwise.
	LocalTargets bool

	ConnectTimeout   time.Duration // for a dial
	HandshakeTimeout time.Duration // for a client to say what it wants
	IdleTimeout      time.Duration // for a connection on which nothing moves
	MaxClients       int           // connections of clients at a time
	// destinations of all UDP associations at a time; at most a quarter is one client's
	MaxSessions int

	// Log gets a line for each client that was turned away; nil means none.
	Log *slog.Logger

	stats    counters
	once     sync.Once
	web      *http.Server
	feed     *feed
	users    *users
	sessions *budget
	crowded  rate.Sometimes // says that clients are turned away

	mu        sync.Mutex
	listeners map[net.Listener]struct{} // guarded by mu, as all below
	clients   map[*client]struct{}
	closing   bool
	wait      sync.WaitGroup // one for each client
}

// Stats counts what a server did.
type Stats struct {
	Accepted, Clients                uint64 // clients so far, and now
	Connects, Associations, Requests uint64 // by what they wanted
	// too many, not understood, wrong password, could not be reached
	TurnedAway, BadHandshakes, Denied, Failed  uint64
	IdleClosed, DatagramsDropped, BytesRelayed uint64
}

type counters struct {
	accepted, clients, connects, associations, requests   atomic.Uint64
	turnedAway, badHandshakes, denied, failed, idleClosed atomic.Uint64
	datagramsDropped, bytesRelayed                        atomic.Uint64
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	c := &s.stats
	return Stats{c.accepted.Load(), c.clients.Load(), c.connects.Load(), c.associations.Load(),
		c.requests.Load(), c.turnedAway.Load(), c.badHandshakes.Load(), c.denied.Load(),
		c.failed.Load(), c.idleClosed.Load(), c.datagramsDropped.Load(), c.bytesRelayed.Load()}
}

// ErrOpen says that a server without users was asked to listen where others can
// reach it.
var ErrOpen = errors.New("proxy: refusing to be open to everybody: listen on loopback, or ask for " +
	"a user and password")

// ErrClosed is what Serve returns after Shutdown.
var ErrClosed = errors.New("proxy: server closed")

// Check reports ErrOpen if a listener at addr would make s an open proxy.
func (s *Server) Check(addr net.Addr) error {
	if len(s.Users) > 0 {
		return nil
	}
	switch a := addr.(type) {
	case *net.UnixAddr:
		return nil // its directory says who may connect
	case *net.TCPAddr:
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap().IsLoopback() {
			return nil
		}
	}
	return fmt.Errorf("%w (%s)", ErrOpen, addr)
}

func (s *Server) prepare() {
	s.once.Do(func() {
		s.ConnectTimeout = orDefault(s.ConnectTimeout, DefaultConnectTimeout)
		s.HandshakeTimeout = orDefault(s.HandshakeTimeout, DefaultHandshakeTimeout)
		s.IdleTimeout = orDefault(s.IdleTimeout, DefaultIdleTimeout)
		if s.MaxClients <= 0 {
			s.MaxClients = DefaultMaxClients
		}
		if s.Log == nil {
			s.Log = slog.New(slog.DiscardHandler)
		}
		s.listeners, s.clients = map[net.Listener]struct{}{}, map[*client]struct{}{}
		if s.MaxSessions <= 0 {
			s.MaxSessions = DefaultMaxSessions
		}
		s.users, s.sessions = newUsers(), newBudget(s.MaxSessions)
		s.crowded.Interval = time.Second
		s.feed = newFeed()
		s.prepareHTTP()
		go s.web.Serve(s.feed)
	})
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// Serve accepts clients from l until Shutdown, or until accepting fails for good.
// It closes l. Several listeners may be served at once.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if err := s.Check(l.Addr()); err != nil {
		return err
	}
	s.prepare()
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return ErrClosed
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	pause := 5 * time.Millisecond
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = 5 * time.Millisecond
			s.admit(conn)
		case s.isClosing():
			return ErrClosed
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("proxy: %w", err)
		default: // out of file descriptors, most likely: some will come back
			s.Log.Warn("cannot accept", "error", err)
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
		}
	}
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// client is one connection of a client and what was made for it. Closing it closes
// all of that.
type client struct {
	s    *Server
	conn net.Conn
	once sync.Once

	mu     sync.Mutex
	others []interface{ Close() error } // guarded by mu
	closed bool                         // guarded by mu
}

// admit takes a client in, or turns it away.
func (s *Server) admit(conn net.Conn) {
	c := &client{s: s, conn: conn}
	s.mu.Lock()
	full := len(s.clients) >= s.MaxClients
	if full || s.closing {
		s.mu.Unlock()
		s.stats.turnedAway.Add(1)
		s.crowded.Do(func() {
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
	go s.greet(c)
}

// own makes other go when c goes. It returns false, and closes other, if c has
// gone already.
func (c *client) own(other interface{ Close() error }) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		other.Close()
		return false
	}
	c.others = append(c.others, other)
	return true
}

// Close ends everything of the client.
func (c *client) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		others := c.others
		c.mu.Unlock()
		c.conn.Close()
		for _, o := range others {
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

// Shutdown stops accepting, waits for the clients to finish, and, when ctx ends,
// closes those that have not. It returns ctx's error in that case.
func (s *Server) Shutdown(ctx context.Context) error {
	s.prepare()
	s.mu.Lock()
	s.closing = true
	for l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.web.Shutdown(ctx) // idle HTTP clients go now
		s.wait.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		s.mu.Lock()
		all := make([]*client, 0, len(s.clients))
		for c := range s.clients {
			all = append(all, c)
		}
		s.mu.Unlock()
		s.web.Close()
		for _, c := range all {
			c.Close()
		}
		<-done
	}
	s.feed.Close()
	return err
}

// greet finds out what a client speaks.
func (s *Server) greet(c *client) {
	c.conn.SetDeadline(time.Now().Add(s.HandshakeTimeout))
	r := &reader{conn: c.conn}
	first, err := r.peek()
	switch {
	case err != nil:
		c.Close()
	case first == socksVersion:
		s.socks(c, r)
	case first >= 'A' && first <= 'Z' || first >= 'a' && first <= 'z':
		c.conn.SetDeadline(time.Time{})
		if !s.feed.give(&webConn{Conn: c.conn, client: c, early: r.rest()}) {
			c.Close()
		}
	default:
		s.bad(c, fmt.Errorf("it begins with %#x, which is neither SOCKS5 nor HTTP", first))
	}
}

// bad ends a client that cannot be understood.
func (s *Server) bad(c *client, err error) {
	s.stats.badHandshakes.Add(1)
	s.Log.Info("handshake failed", "client", c.conn.RemoteAddr(), "error", err)
	c.Close()
}

// dial connects to where a client wants to go, within ConnectTimeout.
func (s *Server) dial(ctx context.Context, client net.Conn, network, address string) (
	net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.ConnectTimeout)
	defer cancel()
	return s.reach(ctx, client, network, address)
}

// reach is dial within the time of ctx.
func (s *Server) reach(ctx context.Context, client net.Conn, network, address string) (
	net.Conn, error) {
	conn, err := s.Dial(s.withClient(ctx, client), network, address)
	if err != nil {
		s.stats.failed.Add(1)
		s.Log.Info("cannot connect", "address", address, "error", err)
	}
	return conn, err
}
