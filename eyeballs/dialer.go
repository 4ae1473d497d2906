package eyeballs

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/net/idna"

	"github.com/weirnet/weir/eyeballs/dns"
)

// DefaultResolver and DefaultHistory serve every Dialer that names no other.
var (
	DefaultResolver = &dns.Resolver{}
	DefaultHistory  = &History{}
)

// Dialer dials by racing. Its zero value is ready for use, as is that of
// [net.Dialer], whose fields it has where they make sense. It is safe for
// concurrent use as long as nobody changes its fields.
type Dialer struct {
	// Timeout, Deadline, LocalAddr, KeepAlive, KeepAliveConfig, Control and
	// ControlContext are those of net.Dialer. A timeout is not divided between
	// addresses; if it is short, the attempts follow each other faster. LocalAddr
	// limits the race to its family.
	Timeout         time.Duration
	Deadline        time.Time
	LocalAddr       net.Addr
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig
	Control         func(network, address string, c syscall.RawConn) error
	ControlContext  func(ctx context.Context, network, address string, c syscall.RawConn) error

	// Resolver answers questions about names; nil means DefaultResolver.
	Resolver *dns.Resolver
	// History remembers; nil means DefaultHistory.
	History *History

	// TLS makes the race be won by a finished TLS handshake, so that a server that
	// accepts and then stalls delays nobody. The connection is then a *tls.Conn.
	// ServerName defaults to the host of the address.
	TLS *tls.Config

	// HTTPS says that the connections carry HTTP over TLS: HTTPS records (RFC
	// 9460) are asked for, and their targets, ports and hints join the race.
	// The protocols spoken are TLS.NextProtos, or h2 and http/1.1.
	HTTPS bool

	// NAT64 is the prefix of the network's NAT64 where it is known, for example
	// from a router advertisement (RFC 8781). On a host without IPv4 it is found
	// out otherwise (RFC 7050).
	NAT64 netip.Prefix

	// Trace, if set, is told everything that happens in a dial, in order and from
	// one goroutine at a time. It must return soon: the race waits for it.
	Trace func(Event)
}

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to the address on the network, as net.Dialer does. Names
// are raced on tcp and udp networks; everything else is left to net.Dialer. The
// connection outlives ctx.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if ctx == nil {
		panic("nil context")
	}
	host, port, ok := nameIn(network, address)
	if !ok {
		return d.dialLiteral(ctx, network, address)
	}
	end := earliest(d.deadline(time.Now()), d.Deadline)
	if have, ok := ctx.Deadline(); !end.IsZero() && (!ok || end.Before(have)) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	number, err := portNumber(ctx, network, port)
	if err != nil {
		return fail(err)
	}
	ascii, err := toASCII(host)
	if err != nil {
		return fail(&net.DNSError{Err: "not a domain name: " + err.Error(), Name: host,
			IsNotFound: true})
	}
	r := newRun(d, ctx, network, address, ascii, number)
	conn, lost := r.run()
	if lost != nil {
		return fail(lost)
	}
	return conn, nil
}

// nameIn splits an address whose host is a name on a network where names are
// raced.
func nameIn(network, address string) (host, port string, ok bool) {
	switch network {
	case "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6":
	default:
		return "", "", false
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", "", false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return "", "", false
	}
	return host, port, true
}

func portNumber(ctx context.Context, network, port string) (uint16, error) {
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		return uint16(n), nil
	}
	n, err := net.DefaultResolver.LookupPort(ctx, network, port)
	return uint16(n), err
}

// toASCII gives the form in which DNS has an international name.
func toASCII(host string) (string, error) {
	for i := range len(host) {
		if host[i] >= 0x80 {
			return idna.Lookup.ToASCII(host)
		}
	}
	return host, nil
}

func (d *Dialer) deadline(now time.Time) time.Time {
	if d.Timeout <= 0 {
		return time.Time{}
	}
	return now.Add(d.Timeout)
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (d *Dialer) resolver() *dns.Resolver {
	if d.Resolver != nil {
		return d.Resolver
	}
	return DefaultResolver
}

func (d *Dialer) history() *History {
	if d.History != nil {
		return d.History
	}
	return DefaultHistory
}

// anyFamily is a local address for attempts over both families: the unspecified one of either
// family means any, as in package net.
func anyFamily(a net.Addr) net.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		if a != nil && a.IP.IsUnspecified() {
			return &net.TCPAddr{Port: a.Port}
		}
	case *net.UDPAddr:
		if a != nil && a.IP.IsUnspecified() {
			return &net.UDPAddr{Port: a.Port}
		}
	}
	return a
}

// plain is the net.Dialer with the fields of d that it knows.
func (d *Dialer) plain() net.Dialer {
	return net.Dialer{
		LocalAddr:       anyFamily(d.LocalAddr),
		KeepAlive:       d.KeepAlive,
		KeepAliveConfig: d.KeepAliveConfig,
		Control:         d.Control,
		ControlContext:  d.ControlContext,
	}
}
