package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The numbers of RFC 1928 and RFC 1929.
const (
	socksVersion = 5
	authVersion  = 1

	methodNone     = 0
	methodPassword = 2
	methodRefused  = 0xff

	cmdConnect   = 1
	cmdAssociate = 3

	atypV4   = 1
	atypName = 3
	atypV6   = 4
)

// Replies of RFC 1928 section 6.
const (
	replyOK             = 0
	replyFailed         = 1
	replyNotAllowed     = 2
	replyNetUnreachable = 3
	replyNoHost         = 4
	replyRefused        = 5
	replyTimeout        = 6 // "TTL expired", as others use it
	replyNoCommand      = 7
	replyNoAddress      = 8
)

// request is what a SOCKS5 client wants.
type request struct {
	command byte
	host    string // a name as written, or an address
	port    uint16
}

func (q *request) address() string { return net.JoinHostPort(q.host, strconv.Itoa(int(q.port))) }

var errDenied = errors.New("wrong user or password")

// socks serves a SOCKS5 client.
func (s *Server) socks(c *client, r *reader) {
	q, reply, err := s.negotiate(r)
	if err != nil {
		if reply != replyOK {
			c.conn.Write(replyTo(reply, netip.AddrPort{}))
		}
		s.bad(c, err)
		return
	}
	c.conn.SetDeadline(time.Time{})
	switch q.command {
	case cmdConnect:
		s.socksConnect(c, r, &q)
	case cmdAssociate:
		s.associate(c, &q)
	}
}

// negotiate agrees on a method, checks the password, and reads the request. With
// an error comes the reply to send first, replyOK for none.
func (s *Server) negotiate(r *reader) (q request, reply byte, err error) {
	head, err := r.take(2)
	if err != nil {
		return q, replyOK, err
	}
	if head[0] != socksVersion {
		return q, replyOK, fmt.Errorf("SOCKS version %d", head[0])
	}
	methods, err := r.take(int(head[1]))
	if err != nil {
		return q, replyOK, err
	}
	want := byte(methodNone)
	if len(s.Users) > 0 {
		want = methodPassword
	}
	offered := false
	for _, m := range methods {
		offered = offered || m == want
	}
	if !offered {
		r.conn.Write([]byte{socksVersion, methodRefused})
		s.stats.denied.Add(1)
		return q, replyOK, fmt.Errorf("the client offers the methods %v, but not %d", methods, want)
	}
	if _, err := r.conn.Write([]byte{socksVersion, want}); err != nil {
		return q, replyOK, err
	}
	if want == methodPassword {
		if err := s.password(r); err != nil {
			return q, replyOK, err
		}
	}
	return readRequest(r)
}

// password is RFC 1929.
func (s *Server) password(r *reader) error {
	head, err := r.take(2)
	if err != nil {
		return err
	}
	if head[0] != authVersion {
		return fmt.Errorf("password negotiation version %d", head[0])
	}
	b, err := r.take(int(head[1]) + 1)
	if err != nil {
		return err
	}
	user, length := string(b[:len(b)-1]), int(b[len(b)-1])
	pass, err := r.take(length)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.HandshakeTimeout)
	defer cancel()
	if !s.allowed(ctx, r.conn, user, string(pass)) {
		r.conn.Write([]byte{authVersion, 1})
		return errDenied
	}
	_, err = r.conn.Write([]byte{authVersion, 0})
	return err
}

// allowed checks a user's password.
func (s *Server) allowed(ctx context.Context, client net.Conn, user, pass string) bool {
	if s.users.allowed(ctx, s.Users, addrOf(client.RemoteAddr()), user, pass, time.Now) {
		return true
	}
	s.stats.denied.Add(1)
	return false
}

func readRequest(r *reader) (q request, reply byte, err error) {
	head, err := r.take(3)
	if err != nil {
		return q, replyOK, err
	}
	if head[0] != socksVersion {
		return q, replyFailed, fmt.Errorf("SOCKS version %d in the request", head[0])
	}
	q.command = head[1]
	host, port, err := readAddress(r)
	if err != nil {
		reply = replyOK
		if errors.Is(err, errAddressType) {
			reply = replyNoAddress
		}
		return q, reply, err
	}
	q.host, q.port = host, port
	if q.command != cmdConnect && q.command != cmdAssociate {
		return q, replyNoCommand, fmt.Errorf("command %d is not supported", q.command)
	}
	if q.host == "" {
		return q, replyNoAddress, errors.New("an empty host name")
	}
	return q, replyOK, nil
}

var errAddressType = errors.New("unknown type of address")

// taker gives bytes one after the other: a connection, or a datagram.
type taker interface{ take(n int) ([]byte, error) }

// readAddress reads type, address and port (RFC 1928 section 5).
func readAddress(r taker) (host string, port uint16, err error) {
	t, err := r.take(1)
	if err != nil {
		return "", 0, err
	}
	var size int
	switch t[0] {
	case atypV4:
		size = 4
	case atypV6:
		size = 16
	case atypName:
		n, err := r.take(1)
		if err != nil {
			return "", 0, err
		}
		size = -int(n[0])
	default:
		return "", 0, fmt.Errorf("%w: %d", errAddressType, t[0])
	}
	b, err := r.take(max(size, -size) + 2)
	if err != nil {
		return "", 0, err
	}
	port = binary.BigEndian.Uint16(b[len(b)-2:])
	if size <= 0 {
		host = string(b[:len(b)-2])
		if strings.ContainsAny(host, "[]") { // it would not survive in host:port
			return "", 0, fmt.Errorf("%w: %q is no name", errAddressType, host)
		}
		return host, port, nil
	}
	a, _ := netip.AddrFromSlice(b[:size])
	return a.Unmap().String(), port, nil
}

func appendAddress(b []byte, a netip.AddrPort) []byte {
	addr := a.Addr().Unmap().WithZone("")
	switch {
	case addr.Is6():
		b = append(b, atypV6)
		b = append(b, addr.AsSlice()...)
	case addr.Is4():
		b = append(b, atypV4)
		b = append(b, addr.AsSlice()...)
	default:
		b = append(b, atypV4, 0, 0, 0, 0)
	}
	return binary.BigEndian.AppendUint16(b, a.Port())
}

func replyTo(code byte, bound netip.AddrPort) []byte {
	return appendAddress([]byte{socksVersion, code, 0}, bound)
}

// socksConnect serves CONNECT.
func (s *Server) socksConnect(c *client, r *reader, q *request) {
	s.stats.connects.Add(1)
	far, err := s.dialFor(c, q.address())
	if err != nil {
		c.conn.SetWriteDeadline(time.Now().Add(time.Second))
		c.conn.Write(replyTo(replyFor(err), netip.AddrPort{}))
		c.Close()
		return
	}
	if !c.own(far) {
		return
	}
	if _, err := c.conn.Write(replyTo(replyOK, boundAt(far))); err != nil {
		c.Close()
		return
	}
	s.relay(c, far, r.rest())
}

// patience is how long a dial goes on before anybody looks whether the client is
// still there: most dials are over by then, and the look costs a goroutine.
const patience = 100 * time.Millisecond

// dialFor dials while it watches the client: if it hangs up, the dial ends. What
// the client says early must not be lost, so only its leaving is looked for.
func (s *Server) dialFor(c *client, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.ConnectTimeout)
	defer cancel()
	stop := make(chan func(), 1)
	late := time.AfterFunc(patience, func() { stop <- watch(c.conn, cancel) })
	defer func() {
		if !late.Stop() {
			(<-stop)()
		}
	}()
	return s.reach(ctx, c.conn, "tcp", address)
}

func boundAt(conn net.Conn) netip.AddrPort {
	a, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	return a
}

// replyFor finds the reply that says best why a dial failed.
func replyFor(err error) byte {
	var d *net.DNSError
	switch {
	case errors.Is(err, ErrNotAllowed):
		return replyNotAllowed
	case errors.Is(err, syscall.ECONNREFUSED):
		return replyRefused
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT):
		return replyTimeout
	case errors.Is(err, syscall.ENETUNREACH):
		return replyNetUnreachable
	case errors.Is(err, syscall.EHOSTUNREACH), errors.As(err, &d):
		return replyNoHost
	}
	return replyFailed
}
