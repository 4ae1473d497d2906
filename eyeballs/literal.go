package eyeballs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/internal/nat64"
)

// dialLiteral passes a literal address to net.Dialer: there is nothing to race.
func (d *Dialer) dialLiteral(ctx context.Context, network, address string) (net.Conn, error) {
	plain := d.plain()
	plain.Timeout, plain.Deadline = d.Timeout, d.Deadline
	if d.Trace == nil && d.TLS == nil {
		conn, err := plain.DialContext(ctx, network, address)
		if err == nil || !noRoute(err) {
			return conn, err
		}
		if through, ok := d.throughNAT64(ctx, network, address); ok {
			return plain.DialContext(ctx, network, through)
		}
		return nil, err
	}
	return d.dialLiteralTraced(ctx, &plain, network, address)
}

// dialLiteralTraced is dialLiteral with a trace or a handshake.
func (d *Dialer) dialLiteralTraced(ctx context.Context, plain *net.Dialer, network,
	address string) (net.Conn, error) {
	begin := time.Now()
	if end := earliest(d.deadline(begin), d.Deadline); !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	trace := func(e Event) {
		if d.Trace != nil {
			e.At = time.Since(begin)
			d.Trace(e)
		}
	}
	target, _ := netip.ParseAddrPort(address)
	trace(Event{Kind: EventConnecting, Addr: target})
	conn, err := plain.DialContext(ctx, network, address)
	if err != nil && noRoute(err) {
		if through, ok := d.throughNAT64(ctx, network, address); ok {
			trace(Event{Kind: EventFailed, Addr: target, Err: err})
			target, _ = netip.ParseAddrPort(through)
			trace(Event{Kind: EventConnecting, Attempt: 1, Addr: target})
			conn, err = plain.DialContext(ctx, network, through)
		}
	}
	stage := StageConnect
	if err == nil && d.TLS != nil {
		trace(Event{Kind: EventConnected, Addr: target})
		stage = StageHandshake
		host, _, _ := net.SplitHostPort(address)
		conn, err = handshake(ctx, conn, d.tlsConfig(host))
	}
	if err != nil {
		trace(Event{Kind: EventFailed, Addr: target, Err: err})
		trace(Event{Kind: EventLost})
		lost := &Error{Network: network, Address: address, Elapsed: time.Since(begin),
			Cause: ctx.Err()}
		lost.Attempts = []Attempt{{Addr: target, Stage: stage, Duration: lost.Elapsed, Err: err}}
		return nil, &net.OpError{Op: "dial", Net: network, Err: lost}
	}
	trace(Event{Kind: EventWon, Addr: target})
	return conn, nil
}

func noRoute(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// throughNAT64 returns the IPv6 address that a NAT64 translates to an IPv4 literal, on a host that
// has no IPv4 (HEv3 section 8).
func (d *Dialer) throughNAT64(ctx context.Context, network, address string) (string, bool) {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !ap.Addr().Unmap().Is4() || network == "tcp4" || network == "udp4" {
		return "", false
	}
	if host := d.history().views.get(); host.route4.IsValid() || !host.v6 {
		return "", false
	}
	prefixes := []netip.Prefix{d.NAT64}
	if !d.NAT64.IsValid() {
		answer := func(a dns.Answer) { prefixes = a.Prefixes }
		if left := d.resolver().QueryLocal(nat64.Name, dns.Prefix64, answer); left != 0 {
			d.resolver().Query(ctx, nat64.Name, left, answer)
		}
	}
	for _, p := range prefixes {
		if a, ok := nat64.Synthesize(p, ap.Addr()); ok {
			return netip.AddrPortFrom(a, ap.Port()).String(), true
		}
	}
	return "", false
}
