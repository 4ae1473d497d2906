package eyeballstest

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Family is the set of families that the dialling host has.
type Family uint8

// The kinds of hosts.
const (
	DualStack Family = iota
	OnlyV4
	OnlyV6
)

// Scenario is one fault on the path.
type Scenario struct {
	Name string
	Host Family
	// V6 and V4 are the hosts behind the name, in the order of the answers.
	V6, V4 []Host
	// AAAA and A are the faults of the answers. Stage sets their Addrs and TTL.
	AAAA, A Record
	// TLS requires a finished handshake.
	TLS bool
	// NAT64 puts the host behind a NAT64 that it discovers by ipv4only.arpa.
	NAT64 bool
	// Again measures the second dial to the same name.
	Again bool
	// Prescribed is the sum of the delays that the standards prescribe for this dial and of those
	// of the network.
	Prescribed time.Duration
	// Want is the family that must win, 4 or 6.
	Want int
}

// Prefix64 is the prefix of the simulated NAT64.
var Prefix64 = netip.MustParsePrefix("64:ff9b::/96")

const ms = time.Millisecond

// Scenarios lists what is tested and measured.
func Scenarios() []Scenario {
	ok, drop, rst := Host{Mode: Accept}, Host{Mode: Drop}, Host{Mode: Reset}
	times := func(n int, h Host) []Host {
		list := make([]Host, n)
		for i := range list {
			list[i] = h
		}
		return list
	}
	then := func(list []Host, last Host) []Host { return append(list, last) }
	one := []Host{ok}
	never, once := Record{Lose: -1}, Record{Lose: 1}
	all := []Scenario{
		{Name: "both ok", V6: one, V4: one, Want: 6},
		{Name: "v6 black hole, v4 ok", V6: []Host{drop}, V4: one, Want: 4, Prescribed: 250 * ms},
		{Name: "the same, second dial", V6: []Host{drop}, V4: one, Want: 4, Again: true},
		{Name: "v4 black hole, v6 ok", V6: one, V4: []Host{drop}, Want: 6},
		{Name: "v6 RST, v4 ok", V6: []Host{rst}, V4: one, Want: 4},
		{Name: "v6 ICMP unreachable, v4 ok", V6: []Host{{Mode: Unreachable}}, V4: one, Want: 4},
		{Name: "v6 [drop x3], v4 [drop, ok]", V6: times(3, drop), V4: then(times(1, drop), ok),
			Want: 4, Prescribed: 750 * ms},
		{Name: "v6 [drop x8], v4 ok", V6: times(8, drop), V4: one, Want: 4, Prescribed: 250 * ms},
		{Name: "v4 [RST x3, ok]", V4: then(times(3, rst), ok), Want: 4},
		{Name: "v6 RTT 280 ms, v4 RTT 20 ms", V6: []Host{{Mode: Accept, RTT: 280 * ms}},
			V4: []Host{{Mode: Accept, RTT: 20 * ms}}, Want: 4, Prescribed: 270 * ms},
		{Name: "v6 RTT 600 ms, v4 black hole", V6: []Host{{Mode: Accept, RTT: 600 * ms}},
			V4: []Host{drop}, Want: 6, Prescribed: 600 * ms},
		{Name: "AAAA late by 1 s, v6 black hole", V6: []Host{drop}, V4: one,
			AAAA: Record{Delay: 1000 * ms}, Want: 4, Prescribed: 50 * ms},
		{Name: "AAAA late by 150 ms, v4 black hole", V6: one, V4: []Host{drop},
			AAAA: Record{Delay: 150 * ms}, Want: 6, Prescribed: 300 * ms},
		{Name: "A late by 1 s", V6: one, V4: one, A: Record{Delay: 1000 * ms}, Want: 6},
		{Name: "A never answered", V6: one, V4: one, A: never, Want: 6},
		{Name: "AAAA never answered", V6: one, V4: one, AAAA: never, Want: 4, Prescribed: 50 * ms},
		{Name: "the same, second dial", V6: one, V4: one, AAAA: never, Want: 4, Again: true},
		{Name: "first A packet lost", V6: one, V4: one, A: once, Want: 6},
		{Name: "first AAAA packet lost", V6: one, V4: one, AAAA: once, Want: 4,
			Prescribed: 50 * ms},
		{Name: "both first packets lost", V6: one, V4: one, A: once, AAAA: once, Want: 6,
			Prescribed: 1000 * ms},
		{Name: "AAAA fails, A ok", V6: one, V4: one,
			AAAA: Record{RCode: dnsmessage.RCodeServerFailure}, Want: 4},
		{Name: "TLS stalls on v6, v4 ok", V6: []Host{{Mode: Stall}}, V4: one, TLS: true, Want: 4,
			Prescribed: 250 * ms},
		{Name: "the same, second dial", V6: []Host{{Mode: Stall}}, V4: one, TLS: true, Want: 4,
			Again: true},
		{Name: "100 addresses, all RST but the last", V6: times(50, rst),
			V4: then(times(49, rst), ok), Want: 4},
		// With ten seconds to go, a hundred addresses get less than 250 ms each: 192
		// before A is known, 98 after.
		{Name: "100 addresses, the first 4 dead", V6: append(times(2, drop), times(48, ok)...),
			V4: append(times(2, drop), times(48, ok)...), Want: 6, Prescribed: 485 * ms},
		{Name: "v4-only host, AAAA late by 1 s", Host: OnlyV4, V6: one, V4: one,
			AAAA: Record{Delay: 1000 * ms}, Want: 4},
		{Name: "v4-only host, AAAA never answered", Host: OnlyV4, V6: one, V4: one, AAAA: never,
			Want: 4},
		{Name: "v6-only host, A never answered", Host: OnlyV6, V6: one, V4: one, A: never, Want: 6},
		{Name: "v6-only host with NAT64, v4-only name", Host: OnlyV6, V4: one, NAT64: true,
			Want: 6},
	}
	for _, k := range []int{1, 3, 8} {
		all = append(all, Scenario{Name: fmt.Sprintf("v4 [drop x%d, ok]", k),
			V4: then(times(k, drop), ok), Want: 4, Prescribed: time.Duration(k) * 250 * ms})
	}
	for _, late := range []time.Duration{10 * ms, 30 * ms, 100 * ms, 1000 * ms} {
		s := Scenario{Name: fmt.Sprintf("AAAA late by %v", late), V6: one, V4: one,
			AAAA: Record{Delay: late}, Want: 6, Prescribed: late}
		if late > 50*ms {
			s.Want, s.Prescribed = 4, 50*ms
		}
		all = append(all, s)
	}
	return all
}

// SetUp sets a scenario up under a new name, so that several can run at once and nothing is cached.
// serial must be different for each name. plain and secure are the ports of the servers without and
// with TLS.
func (s *Scenario) SetUp(n *Net, d *DNS, serial int, plain, secure uint16) (name string) {
	name = fmt.Sprintf("s%d.test", serial)
	port := plain
	if s.TLS {
		port = secure
	}
	put := func(i int, h Host, v6 bool) netip.Addr {
		h.Port = port
		a := netip.AddrFrom4([4]byte{203, byte(serial >> 8), byte(serial), byte(i + 1)})
		wire := a
		if v6 {
			b := [16]byte{0x20, 1, 0x0d, 0xb8, 1, 0, byte(serial >> 8), byte(serial),
				15: byte(i + 1)}
			a = netip.AddrFrom16(b)
			wire = a
		} else if s.NAT64 {
			b := Prefix64.Addr().As16()
			v4 := a.As4()
			copy(b[12:], v4[:])
			wire = netip.AddrFrom16(b)
		}
		n.Set(wire, h)
		return a
	}
	a, aaaa := s.A, s.AAAA
	// A TTL of one minute: the second dial of a scenario may use what the first learned.
	a.TTL, aaaa.TTL = 60, 60
	for i, h := range s.V4 {
		a.Addrs = append(a.Addrs, put(i, h, false))
	}
	for i, h := range s.V6 {
		aaaa.Addrs = append(aaaa.Addrs, put(i, h, true))
	}
	d.Set(name, dnsmessage.TypeA, a)
	d.Set(name, dnsmessage.TypeAAAA, aaaa)
	if s.NAT64 {
		d.Set("ipv4only.arpa", dnsmessage.TypeAAAA, Record{TTL: 60, Addrs: []netip.Addr{
			netip.MustParseAddr("64:ff9b::c000:aa"), netip.MustParseAddr("64:ff9b::c000:ab")}})
	}
	return name
}
