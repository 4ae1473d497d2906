package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// maxWaitingBytes bounds what the datagrams of all clients that wait for a dial have together. One
// client has at most a quarter.
const maxWaitingBytes = 16 << 20

// Bounds of one UDP association.
const (
	maxSessions = 64 // destinations at a time
	maxWaiting  = 16 // datagrams of a session that wait for its dial
	sessionIdle = 2 * time.Minute
	maxDatagram = 65535
)

// association relays datagrams between one client and its destinations. It lives as long as the
// client's TCP connection (RFC 1928 section 6).
type association struct {
	s     *Server
	c     *client
	raw   syscall.RawConn // the UDP socket
	peer  netip.Addr      // the client's, no zone; datagrams from other addresses are dropped
	zone  uint32          // index of the interface of a link-local peer; else 0
	ctx   context.Context
	clock *clock

	mu     sync.Mutex
	client netip.AddrPort // guarded by mu, as all below: the destination of answers
	// fixed means that the request named client. Else client is the source of the first datagram,
	// until none has come for sessionIdle.
	fixed    bool
	lastSeen time.Time // when the client's last datagram came
	sessions map[string]*session
}

// session is one destination.
type session struct {
	conn    net.Conn
	waiting [][]byte
}

// associate serves UDP ASSOCIATE.
func (s *Server) associate(c *client, q *request) {
	s.stats.associations.Add(1)
	local, remote := addrOf(c.conn.LocalAddr()), addrOf(c.conn.RemoteAddr()).WithZone("")
	sock, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)))
	if err != nil {
		s.stats.failed.Add(1)
		c.conn.Write(replyTo(replyFailed, netip.AddrPort{}))
		c.Close()
		return
	}
	if !c.attach(sock) {
		return
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		c.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.attach(closer(cancel))
	a := &association{s: s, c: c, raw: raw, peer: remote, zone: zoneOf(c.conn), ctx: ctx,
		clock: newClock(s.IdleTimeout), sessions: map[string]*session{}}
	// The request may name the port from which the client will send; most clients send 0. With a
	// port, another user of the client's host cannot take the association over.
	if want, err := netip.ParseAddr(q.host); err == nil && q.port != 0 &&
		(want == remote || want.IsUnspecified()) {
		a.client, a.fixed = netip.AddrPortFrom(remote, q.port), true
	}
	if _, err := c.conn.Write(replyTo(replyOK,
		sock.LocalAddr().(*net.UDPAddr).AddrPort())); err != nil {
		c.Close()
		return
	}
	go a.serve()
	go a.watch()
}

// closer is a function as an io.Closer.
type closer func()

// Close calls the function.
func (f closer) Close() error { f(); return nil }

func addrOf(a net.Addr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	ap, _ := netip.ParseAddrPort(a.String())
	return ap.Addr().Unmap()
}

// watch ends the association with its TCP connection, or when nothing has moved for too long.
func (a *association) watch() {
	defer a.c.Close()
	var b [64]byte
	for {
		a.c.conn.SetReadDeadline(a.clock.deadline())
		_, err := a.c.conn.Read(b[:])
		if err != nil && !(isTimeout(err) && !a.clock.over()) {
			if isTimeout(err) {
				a.s.stats.idleClosed.Add(1)
			}
			return
		}
	}
}

// datagram is a taker over one packet.
type datagram []byte

func (d *datagram) take(n int) ([]byte, error) {
	if len(*d) < n {
		return nil, io.ErrUnexpectedEOF
	}
	b := (*d)[:n]
	*d = (*d)[n:]
	return b, nil
}

var errFragment = errors.New("a fragment")

// parseDatagram splits a client's datagram (RFC 1928 section 7).
func parseDatagram(b []byte) (q request, payload []byte, err error) {
	d := datagram(b)
	head, err := d.take(3)
	if err != nil {
		return q, nil, err
	}
	if head[2] != 0 {
		return q, nil, errFragment
	}
	if q.host, q.port, err = readAddress(&d); err != nil {
		return q, nil, err
	}
	if q.host == "" {
		return q, nil, errAddressType
	}
	return q, d, nil
}

// serve reads and forwards the client's datagrams.
func (a *association) serve() {
	defer a.c.Close()
	for {
		d, err := receive(a.raw, 0)
		if err != nil {
			return
		}
		if !a.forward(d) {
			a.s.stats.datagramsDropped.Add(1)
		}
		d.release()
	}
}

// forward forwards a client's datagram. It reports whether it did.
func (a *association) forward(d *received) bool {
	q, payload, err := parseDatagram(d.bytes())
	if err != nil || !a.fromClient(d) || !a.send(&q, payload) {
		return false
	}
	a.clock.touch()
	a.s.stats.bytesRelayed.Add(uint64(len(payload)))
	return true
}

// fromClient reports whether a datagram is the client's. The first one shows the client's port, and
// so does the first one after sessionIdle.
func (a *association) fromClient(d *received) bool {
	if d.from.Addr() != a.peer || d.zone != a.zone {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if !a.fixed && (!a.client.IsValid() || now.Sub(a.lastSeen) > sessionIdle) {
		a.client = d.from
	}
	if d.from != a.client {
		return false
	}
	a.lastSeen = now
	return true
}

// send sends a datagram to its destination, over a new session if it has none.
func (a *association) send(q *request, payload []byte) bool {
	key := q.address()
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.sessions[key]
	if t == nil {
		if len(a.sessions) >= maxSessions || !a.s.quota.acquire(a.peer, 1) {
			return false
		}
		t = &session{}
		a.sessions[key] = t
		go a.run(t, key)
	}
	if t.conn == nil {
		if len(t.waiting) >= maxWaiting || !a.s.waiting.acquire(a.peer, len(payload)) {
			return false
		}
		t.waiting = append(t.waiting, append([]byte(nil), payload...))
		return true
	}
	_, err := t.conn.Write(payload)
	return err == nil
}

// run connects a session, sends the waiting datagrams, and returns answers until it has been idle
// for too long.
func (a *association) run(t *session, key string) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.sessions, key)
		a.s.quota.release(a.peer, 1)
		a.s.stats.datagramsDropped.Add(uint64(len(t.waiting)))
		a.waitNoMoreLocked(t)
	}()
	conn, err := a.s.dial(a.ctx, a.c.conn, "udp", key)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(a.ctx, func() { conn.Close() })()
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	header := appendAddress([]byte{0, 0, 0}, from)
	a.mu.Lock()
	t.conn = conn
	for _, w := range t.waiting {
		conn.Write(w)
	}
	a.waitNoMoreLocked(t)
	a.mu.Unlock()
	a.answers(conn, header)
}

// waitNoMoreLocked forgets the datagrams that have waited.
func (a *association) waitNoMoreLocked(t *session) {
	for _, w := range t.waiting {
		a.s.waiting.release(a.peer, len(w))
	}
	t.waiting = nil
}

// answers returns the datagrams of a destination to the client until it has been idle for too long.
func (a *association) answers(conn net.Conn, header []byte) {
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return
	}
	for {
		conn.SetReadDeadline(time.Now().Add(sessionIdle))
		d, err := receive(raw, len(header))
		if isTimeout(err) || errors.Is(err, net.ErrClosed) || a.ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // an ICMP error about an earlier datagram
		}
		copy(d.buf[:], header)
		a.mu.Lock()
		to := a.client
		a.mu.Unlock()
		if err := send(a.raw, d.bytes(), sockaddrOf(to, a.zone)); err != nil {
			a.s.stats.datagramsDropped.Add(1)
		} else {
			a.clock.touch()
			a.s.stats.bytesRelayed.Add(uint64(d.n - len(header)))
		}
		d.release()
	}
}
