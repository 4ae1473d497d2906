package proxy

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
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
	// Dial makes the connections, to "tcp" or "udp" and the host:port of the client's request. It
	// must not be nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Users maps names to bcrypt hashes of their passwords. If it is empty, clients need no
	// password.
	Users map[string]string
	// LocalTargets lets clients of other hosts reach what ControlContext would refuse them.
	LocalTargets bool

	// ConnectTimeout bounds a dial. HandshakeTimeout bounds the time until a client has sent its
	// request with the password, and the check of the password. IdleTimeout bounds the time in
	// which nothing moves on a connection.
	ConnectTimeout, HandshakeTimeout, IdleTimeout time.Duration
	// MaxClients bounds the connections of clients at a time. A further one takes the place of the
	// oldest that has shown no password, if there is one.
	MaxClients int
	// MaxSessions bounds the destinations of all UDP associations at a time. One client has at
	// most a quarter of them.
	MaxSessions int

	// Log gets messages about failed handshakes and dials and about clients that are turned away;
	// nil means no log.
	Log *slog.Logger

	stats    counters
	once     sync.Once
	web      *http.Server
	queue    *connQueue
	logins   *loginCheck
	quota    *quota         // of destinations
	waiting  *quota         // of the bytes of datagrams that wait for a dial
	limitLog rate.Sometimes // for the message that clients are turned away

	mu        sync.Mutex
	listeners map[net.Listener]struct{} // guarded by mu, as all below
	clients   map[*client]struct{}
	unproven  list.List // clients that have shown no password, if one is needed; the oldest first
	closing   bool
	wait      sync.WaitGroup // one for each client
}

// ErrOpen means that a server without users was to listen where other hosts can reach it.
var ErrOpen = errors.New("proxy: refusing to be an open proxy: listen on loopback, or require a " +
	"user and password")

// ErrClosed is the error of Serve after Shutdown.
var ErrClosed = errors.New("proxy: server closed")

// Check returns ErrOpen if a listener at addr would make s an open proxy.
func (s *Server) Check(addr net.Addr) error {
	if len(s.Users) > 0 {
		return nil
	}
	switch a := addr.(type) {
	case *net.UnixAddr:
		return nil // the mode of its directory decides who may connect
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
		s.logins, s.quota = newLoginCheck(), newQuota(s.MaxSessions)
		s.waiting = newQuota(maxWaitingBytes)
		s.limitLog.Interval = time.Second
		s.queue = newConnQueue()
		s.prepareHTTP()
		go s.web.Serve(s.queue)
	})
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// Serve accepts clients from l until Shutdown, or until l is closed. It closes l. A Server may
// serve several listeners at once.
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
		default: // probably out of file descriptors: try again later
			s.Log.Warn("cannot accept", "err", err)
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

// Shutdown stops accepting and waits for the clients to finish. When ctx ends, it closes those that
// have not, and returns ctx's error.
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
		s.web.Shutdown(ctx) // closes idle HTTP clients now
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
	s.queue.Close()
	return err
}

// detect finds out which protocol a client speaks, and serves it.
func (s *Server) detect(c *client) {
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
		web := &httpConn{Conn: c.conn, client: c, early: r.rest(),
			clock: newClock(s.IdleTimeout)}
		if len(s.Users) > 0 {
			web.loginBy = time.Now().Add(s.HandshakeTimeout)
		}
		if !s.queue.push(web) {
			c.Close()
		}
	default:
		s.refuse(c, fmt.Errorf("the first byte is %#x, which is neither SOCKS5 nor HTTP", first))
	}
}

// refuse ends a client whose handshake failed.
func (s *Server) refuse(c *client, err error) {
	s.stats.badHandshakes.Add(1)
	s.Log.Info("handshake failed", "client", c.conn.RemoteAddr(), "err", err)
	c.Close()
}

// dial connects to the destination of a client within ConnectTimeout.
func (s *Server) dial(ctx context.Context, client net.Conn, network, address string) (
	net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.ConnectTimeout)
	defer cancel()
	return s.dialWithin(ctx, client, network, address)
}

// dialWithin is dial, bounded only by ctx.
func (s *Server) dialWithin(ctx context.Context, client net.Conn, network, address string) (
	net.Conn, error) {
	conn, err := s.Dial(s.withClient(ctx, client), network, address)
	if err != nil {
		s.stats.failed.Add(1)
		s.Log.Info("cannot connect", "address", address, "err", err)
	}
	return conn, err
}
