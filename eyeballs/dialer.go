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

// shared serves every Dialer that has no resolver or no history of its own. It belongs to the
// process, because a Dialer is often made for one dial. The next one should still find the answers
// in the cache and know which addresses are down. It is a value, so no package can replace it.
var shared struct {
	resolver dns.Resolver
	history  History
}

// DefaultResolver returns the resolver of every Dialer that has none of its own.
func DefaultResolver() *dns.Resolver { return &shared.resolver }

// Dialer races the addresses of a name. Its zero value is ready for use. Its first fields are those
// of [net.Dialer]. It is safe for concurrent use as long as its fields do not change.
type Dialer struct {
	// Timeout, Deadline, LocalAddr, KeepAlive, KeepAliveConfig, Control and ControlContext are
	// those of net.Dialer. A timeout is not divided between addresses: if it is short, the attempts
	// follow each other faster. LocalAddr limits the race to its family.
	Timeout         time.Duration
	Deadline        time.Time
	LocalAddr       net.Addr
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig
	Control         func(network, address string, c syscall.RawConn) error
	ControlContext  func(ctx context.Context, network, address string, c syscall.RawConn) error

	// DNS looks names up; nil means DefaultResolver(). It is not named Resolver, because that
	// field of net.Dialer has another type.
	DNS *dns.Resolver
	// History remembers how dials went; nil means one that all such Dialers share.
	History *History

	// TLS makes the first finished TLS handshake win the race, so that a server that accepts and
	// then stalls causes no delay. The connection is then a *tls.Conn. ServerName defaults to the
	// host of the address.
	TLS *tls.Config

	// HTTPS means that the connections carry HTTP over TLS. The dialer looks HTTPS records up (RFC
	// 9460), and their targets, ports and hints join the race. The protocols are TLS.NextProtos, by
	// default h2 and http/1.1.
	HTTPS bool

	// NAT64 is the prefix of the network's NAT64 if it is known, for example from a router
	// advertisement (RFC 8781). If it is not set, a host without IPv4 discovers it by DNS (RFC
	// 7050).
	NAT64 netip.Prefix

	// Trace, if set, receives everything that happens in a dial, in order and from one goroutine at
	// a time. It must return soon: the race waits for it.
	Trace func(Event)
}

// Dial calls DialContext with the background context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to the address on the network, as net.Dialer does. It races the addresses of
// a name on tcp and udp networks, and leaves everything else to net.Dialer. The connection outlives
// ctx.
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
	r := newRun(ctx, d, target{network: network, address: address, host: ascii, port: number})
	conn, lost := r.run()
	if lost != nil {
		return fail(lost)
	}
	return conn, nil
}

// nameIn splits an address whose host is a name. ok is false if the host is an address or the
// network is one on which nothing is raced.
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

// toASCII returns the form of an international name in DNS (RFC 5891).
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
	if d.DNS != nil {
		return d.DNS
	}
	return &shared.resolver
}

func (d *Dialer) history() *History {
	if d.History != nil {
		return d.History
	}
	return &shared.history
}

// anyFamily returns the local address for attempts over both families: the unspecified address of
// either family means any, as in package net.
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

// plain returns a net.Dialer with the fields that it shares with d.
func (d *Dialer) plain() net.Dialer {
	return net.Dialer{
		LocalAddr:       anyFamily(d.LocalAddr),
		KeepAlive:       d.KeepAlive,
		KeepAliveConfig: d.KeepAliveConfig,
		Control:         d.Control,
		ControlContext:  d.ControlContext,
	}
}
