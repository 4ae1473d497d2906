package main

import (
	"fmt"
	"net/netip"

	"go4.org/netipx"
	tspacket "tailscale.com/net/packet"
	"tailscale.com/types/ipproto"
	"tailscale.com/types/logger"
	"tailscale.com/types/views"
	"tailscale.com/wgengine/filter"
)

// peer is Tailscale's filter.
type peer struct {
	*filter.Filter
	parsed tspacket.Parsed
}

// protocols are those that a rule of the peer means when it names none.
var protocols = []ipproto.Proto{ipproto.TCP, ipproto.UDP, ipproto.ICMPv4, ipproto.ICMPv6}

// match makes a rule of the peer. dsts are "prefix:port" or "prefix:low-high"; a port of * is every
// port.
func match(protos []ipproto.Proto, srcs []string, dsts ...dst) filter.Match {
	m := filter.Match{IPProto: views.SliceOf(protos)}
	for _, s := range srcs {
		m.Srcs = append(m.Srcs, prefix(s))
	}
	for _, d := range dsts {
		m.Dsts = append(m.Dsts, filter.NetPortRange{Net: prefix(d.net),
			Ports: filter.PortRange{First: d.lo, Last: d.hi}})
	}
	return m
}

type dst struct {
	net    string
	lo, hi uint16
}

func prefix(s string) netip.Prefix {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p
	}
	a := netip.MustParseAddr(s)
	return netip.PrefixFrom(a, a.BitLen())
}

// local returns the set of the peer's own addresses.
func local(nets ...string) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	for _, n := range nets {
		b.AddPrefix(prefix(n))
	}
	return b.IPSet()
}

// newPeer returns a filter with rules.
func newPeer(matches []filter.Match, nets ...string) (*peer, error) {
	own, err := local(nets...)
	if err != nil {
		return nil, fmt.Errorf("local addresses of the peer: %w", err)
	}
	none, _ := local()
	return &peer{Filter: filter.New(matches, nil, own, none, nil, logger.Discard)}, nil
}

// in and out evaluate a packet n times.
func (p *peer) in(pkt []byte) (pass bool) {
	p.parsed.Decode(pkt)
	return p.RunIn(&p.parsed, 0) == filter.Accept
}

func (p *peer) out(pkt []byte) (pass bool) {
	p.parsed.Decode(pkt)
	r, _ := p.RunOut(&p.parsed, 0)
	return r == filter.Accept
}

// benchRules are the rules of the peer's own benchmark.
func benchRules() []filter.Match {
	any4, any6 := []string{"0.0.0.0/0"}, []string{"::/0"}
	return []filter.Match{
		match(protocols, []string{"8.1.1.1", "8.2.2.2"}, dst{"1.2.3.4", 22, 22},
			dst{"5.6.7.8", 23, 24}),
		match([]ipproto.Proto{ipproto.SCTP}, []string{"9.1.1.1", "9.2.2.2"}, dst{"1.2.3.4", 22, 22},
			dst{"5.6.7.8", 23, 24}),
		match(protocols, []string{"8.1.1.1", "8.2.2.2"}, dst{"5.6.7.8", 27, 28}),
		match(protocols, []string{"2.2.2.2"}, dst{"8.1.1.1", 22, 22}),
		match(protocols, any4, dst{"100.122.98.50", 0, 65535}),
		match(protocols, any4, dst{"0.0.0.0/0", 443, 443}),
		match(protocols, []string{"153.1.1.1", "153.1.1.2", "153.3.3.3"}, dst{"1.2.3.4", 999, 999}),
		match(protocols, []string{"::1", "::2"}, dst{"2001::1", 22, 22}, dst{"2001::2", 22, 22}),
		match(protocols, any6, dst{"::/0", 443, 443}),
		match([]ipproto.Proto{116}, any4, dst{"0.0.0.0/0", 0, 65535}),
		match([]ipproto.Proto{116}, any6, dst{"::/0", 0, 65535}),
	}
}

// benchLocal are the peer's own addresses there.
var benchLocal = []string{"100.122.98.50", "1.2.3.4", "5.6.7.8", "102.102.102.102",
	"119.119.119.119", "8.1.0.0/16", "2001::/16"}
