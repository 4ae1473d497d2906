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
	replyTimeout        = 6 // "TTL expired", which other proxies use for a timeout
	replyNoCommand      = 7
	replyNoAddress      = 8
)

// request is the request of a SOCKS5 client.
type request struct {
	command byte
	host    string // a name as the client sent it, or an address
	port    uint16
}

func (q *request) address() string { return net.JoinHostPort(q.host, strconv.Itoa(int(q.port))) }

var errDenied = errors.New("wrong user or password")

func (s *Server) socks(c *client, r *reader) {
	q, reply, err := s.negotiate(c, r)
	if err != nil {
		if reply != replyOK {
			c.conn.Write(replyTo(reply, netip.AddrPort{}))
		}
		s.refuse(c, err)
		return
	}
	c.proved()
	c.conn.SetDeadline(time.Time{})
	switch q.command {
	case cmdConnect:
		s.socksConnect(c, r, &q)
	case cmdAssociate:
		s.associate(c, &q)
	}
}

// negotiate agrees on a method, checks the password, and reads the request. On an error, reply is
// to be sent first unless it is replyOK.
func (s *Server) negotiate(c *client, r *reader) (q request, reply byte, err error) {
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
		if err := s.password(c, r); err != nil {
			return q, replyOK, err
		}
	}
	return readRequest(r)
}

// password does the username/password negotiation (RFC 1929).
func (s *Server) password(c *client, r *reader) error {
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
	if !s.allowed(context.Background(), c, user, string(pass)) {
		r.conn.Write([]byte{authVersion, 1})
		return errDenied
	}
	_, err = r.conn.Write([]byte{authVersion, 0})
	return err
}

// allowed checks a user's password, within HandshakeTimeout. It returns when the client is closed:
// otherwise more than MaxClients could wait here.
func (s *Server) allowed(ctx context.Context, c *client, user, pass string) bool {
	ctx, cancel := context.WithTimeout(ctx, s.HandshakeTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	if s.logins.allowed(ctx, s.Users, addrOf(c.conn.RemoteAddr()), user, pass, time.Now) {
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
		return q, replyNoAddress, errors.New("the host name is empty")
	}
	return q, replyOK, nil
}

var errAddressType = errors.New("unknown type of address")

// taker returns the next bytes of a connection or of a datagram.
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
		if strings.ContainsAny(host, "[]") { // ambiguous in host:port
			return "", 0, fmt.Errorf("%w: %q is not a name", errAddressType, host)
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
	target, err := s.dialFor(c, q.address())
	if err != nil {
		c.conn.SetWriteDeadline(time.Now().Add(time.Second))
		c.conn.Write(replyTo(replyFor(err), netip.AddrPort{}))
		c.Close()
		return
	}
	if !c.attach(target) {
		return
	}
	if _, err := c.conn.Write(replyTo(replyOK, boundAt(target))); err != nil {
		c.Close()
		return
	}
	s.relay(c, target, r.rest())
}

// watchDelay is how long a dial runs before the proxy starts to watch whether the client hangs up.
// Most dials are over by then, and the watch costs a goroutine.
const watchDelay = 100 * time.Millisecond

// dialFor dials and watches the client: if it hangs up, the dial ends. Early data of the client
// must not be lost, so the watch reads nothing.
func (s *Server) dialFor(c *client, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.ConnectTimeout)
	defer cancel()
	stop := make(chan func(), 1)
	timer := time.AfterFunc(watchDelay, func() { stop <- watch(c.conn, cancel) })
	defer func() {
		if !timer.Stop() {
			(<-stop)()
		}
	}()
	return s.dialWithin(ctx, c.conn, "tcp", address)
}

func boundAt(conn net.Conn) netip.AddrPort {
	a, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	return a
}

// replyFor returns the reply that fits the error of a dial best.
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
