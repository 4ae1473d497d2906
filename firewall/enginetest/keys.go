package enginetest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// keyStep is a packet of a scenario and what has to become of it.
type keyStep struct {
	what   string
	hook   firewall.Hook
	packet []byte
	pass   bool
	use    firewall.StateUse
	reason firewall.Reason
}

// keyCase is a rule set and packets that are evaluated one after the other.
type keyCase struct {
	name, rules string
	steps       []keyStep
}

// RunKeys tests what the key of a flow and of a datagram is, for an engine and for the reference
// model. It tests which ICMP errors, queries, link-local packets and fragments belong to what was
// let through before, and above all which do not.
func RunKeys(t *testing.T, options firewall.Options,
	newSubject func(firewall.Options) (Subject, error)) {
	t.Helper()
	cases := append(errorCases(), queryCases()...)
	cases = append(append(cases, linkCases()...), fragmentCases()...)
	cases = append(cases, sourceCases()...)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rs, err := rule.ParseFile("keys", c.rules, nil)
			if err != nil {
				t.Fatal(err)
			}
			o := rule.CompileOptions{Strict: true}
			p, err := rule.Compile(rs, o)
			if err != nil {
				t.Fatal(err)
			}
			subject, err := newSubject(options)
			if err != nil {
				t.Fatal(err)
			}
			defer subject.Close()
			if err := subject.Load(p); err != nil {
				t.Fatal(err)
			}
			model := NewModel(options)
			model.Load(rs, o, Keys(p))
			for i, s := range c.steps {
				now := time.Second + time.Duration(i)*time.Millisecond
				in := firewall.Input{Hook: s.hook, Now: now}
				got, err := subject.Evaluate(&in, s.packet)
				if err != nil {
					t.Fatal(err)
				}
				want := model.Evaluate(&in, s.packet)
				for name, v := range map[string]firewall.Verdict{"engine": got,
					"reference model": want} {
					if v.Pass != s.pass || v.State != s.use || v.Reason != s.reason {
						t.Errorf("%s: the %s says %+v (%s)", s.what, name, v, v.Reason)
					}
				}
			}
		})
	}
}

// inBy, goes and through are hooks: in, out from the host itself, and out from another interface.
func inBy(by uint32) firewall.Hook  { return firewall.Hook{Dir: firewall.In, Recv: by} }
func outBy(by uint32) firewall.Hook { return firewall.Hook{Dir: firewall.Out, Xmit: by} }

func through(from, to uint32) firewall.Hook {
	return firewall.Hook{Dir: firewall.Out, Recv: from, Xmit: to}
}

func passes(what string, h firewall.Hook, b []byte, use firewall.StateUse) keyStep {
	return keyStep{what, h, b, true, use, firewall.ReasonRule}
}

func drops(what string, h firewall.Hook, b []byte, reason firewall.Reason) keyStep {
	return keyStep{what, h, b, false, firewall.StateNone, reason}
}

// keepStateRules are rules that let an end begin by what matches, and what belongs to that follow.
func keepStateRules(us, match string) string {
	return fmt.Sprintf("add 1 check-state\nadd 10 allow ip from %s to any %s\n"+
		"add 20 deny ip from any to any\n", us, match)
}

// between returns the IP header of packets from one address to another.
func between(from, to string, proto packet.Proto) craft {
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
	return craft{src: src, dst: dst, proto: proto, ttl: 64}
}

func (c craft) with(body []byte) []byte {
	c.body = body
	return c.bytes()
}

// icmpOf returns the ICMP of a family, and its errors.
func icmpOf(v6 bool) (proto packet.Proto, errors []uint8) {
	if v6 {
		return packet.ProtoICMPv6, []uint8{1, 2, 3, 4}
	}
	return packet.ProtoICMP, []uint8{3, 4, 5, 11, 12}
}

// errorCases are flows of all protocols about which errors come, to who sent what they quote and to
// others.
func errorCases() []keyCase {
	var all []keyCase
	for _, a := range [][4]string{
		{"10.0.0.1", "198.51.100.9", "192.0.2.7", "10.0.0.99"},
		{"2001:db8::1", "2001:db8:9::9", "2001:db8:7::7", "2001:db8::99"},
	} {
		us, peer, router, other := a[0], a[1], a[2], a[3]
		icmp, kinds := icmpOf(netip.MustParseAddr(us).Is6())
		echo := map[uint8]uint8{packet.ProtoICMP: 8, packet.ProtoICMPv6: 128}[uint8(icmp)]
		for proto, body := range map[uint8][]byte{
			packet.ProtoTCP:     tcpBody(1000, 80, 5000, 0, packet.FlagSYN, 500, 0xff, 0),
			packet.ProtoUDP:     udpBody(1000, 53, 8),
			packet.ProtoUDPLite: udpBody(1000, 53, 8),
			packet.ProtoSCTP:    sctpBody(1000, 80, 0, 1, 0),
			packet.ProtoGRE:     make([]byte, 8),
			uint8(icmp):         icmpBody(echo, 0, 7, nil),
		} {
			first := between(us, peer, packet.Proto(proto)).with(body)
			c := keyCase{name: fmt.Sprintf("errors about protocol %d of %s", proto, us),
				rules: keepStateRules(us, "out keep-state")}
			c.steps = append(c.steps, passes("the first packet", outBy(2), first,
				firewall.StateNew))
			for _, kind := range kinds {
				failure := func(src, dst string) []byte {
					return between(src, dst, icmp).with(icmpBody(kind, 0, 0, first))
				}
				what := fmt.Sprintf("type %d ", kind)
				c.steps = append(c.steps,
					passes(what+"from the peer", inBy(2), failure(peer, us),
						firewall.StateUntouched),
					passes(what+"from a router", inBy(2), failure(router, us),
						firewall.StateUntouched),
					drops(what+"from the peer to another", inBy(2), failure(peer, other),
						firewall.ReasonRule),
					drops(what+"from a router to another", inBy(3), failure(router, other),
						firewall.ReasonRule),
					drops(what+"to the peer", inBy(2), failure(other, peer), firewall.ReasonRule))
			}
			all = append(all, c)
		}
	}
	return all
}

// queryCases are ICMP queries, the answers that belong to them, and everything else by the same id.
func queryCases() []keyCase {
	var all []keyCase
	for _, f := range []struct {
		us, peer string
		pairs    [][2]uint8
		others   []uint8
	}{
		{"10.0.0.1", "198.51.100.9", [][2]uint8{{8, 0}, {13, 14}, {15, 16}, {17, 18}},
			[]uint8{9, 10, 42, 43}},
		{"2001:db8::1", "2001:db8:9::9", [][2]uint8{{128, 129}, {139, 140}},
			[]uint8{130, 131, 132, 133, 134, 135, 136, 137, 138, 143, 144, 160}},
	} {
		icmp, _ := icmpOf(netip.MustParseAddr(f.us).Is6())
		message := func(src, dst string, typ uint8, id uint16) []byte {
			return between(src, dst, icmp).with(icmpBody(typ, 0, id, make([]byte, 24)))
		}
		for _, id := range []uint16{0, 1, 8, 128, 65535} {
			out := func(typ uint8) []byte { return message(f.us, f.peer, typ, id) }
			in := func(typ uint8) []byte { return message(f.peer, f.us, typ, id) }
			for _, pair := range f.pairs {
				c := keyCase{name: fmt.Sprintf("type %d with id %d from %s", pair[0], id, f.us),
					rules: keepStateRules(f.us, fmt.Sprintf("{ icmptypes %d or icmp6types %d } "+
						"out "+
						"keep-state",
						pair[0], pair[0]))}
				c.steps = append(c.steps,
					drops("an answer to nothing", inBy(2), in(pair[1]), firewall.ReasonRule),
					passes("the query", outBy(2), out(pair[0]), firewall.StateNew))
				for range 2 {
					c.steps = append(c.steps,
						passes("its answer", inBy(2), in(pair[1]), firewall.StateHit),
						passes("the query again", outBy(2), out(pair[0]), firewall.StateHit),
						drops("the same query, inwards", inBy(2), in(pair[0]), firewall.ReasonRule),
						drops("our own answer to it", outBy(2), out(pair[1]), firewall.ReasonRule))
					for _, other := range f.pairs {
						if other != pair {
							c.steps = append(c.steps,
								drops("another query, inwards", inBy(2), in(other[0]),
									firewall.ReasonRule),
								drops("the answer to another", inBy(2), in(other[1]),
									firewall.ReasonRule),
								drops("another query, outwards", outBy(2), out(other[0]),
									firewall.ReasonRule))
						}
					}
					for _, typ := range f.others {
						what := fmt.Sprintf("type %d, inwards", typ)
						c.steps = append(c.steps, drops(what, inBy(2), in(typ),
							firewall.ReasonRule))
					}
				}
				all = append(all, c)
			}
		}
		keeps := keyCase{name: "a rule that keeps state meets answers and messages from " + f.us,
			rules: keepStateRules(f.us, "out keep-state")}
		limits := keyCase{name: "a rule that limits states meets answers and messages from " + f.us,
			rules: keepStateRules(f.us, "out limit src-addr 5")}
		others := f.others
		for _, pair := range f.pairs {
			others = append(others, pair[1])
		}
		for _, typ := range others {
			what := fmt.Sprintf("type %d", typ)
			out, in := message(f.us, f.peer, typ, 0), message(f.peer, f.us, typ, 0)
			keeps.steps = append(keeps.steps, passes(what, outBy(2), out, firewall.StateNone),
				drops(what+" back", inBy(2), in, firewall.ReasonRule))
			limits.steps = append(limits.steps, drops(what, outBy(2), out, firewall.ReasonNoKey))
		}
		for _, pair := range f.pairs {
			in := message(f.peer, f.us, pair[0], 0)
			keeps.steps = append(keeps.steps,
				drops("a query of the peer", inBy(2), in, firewall.ReasonRule))
		}
		all = append(all, keeps, limits)
	}
	return all
}

// forged returns the address, as it could be in a packet, that equals the one that a key has for a
// link-local address on a link.
func forged(addr string, link uint32) string {
	a := netip.MustParseAddr(addr)
	if !a.IsLinkLocalUnicast() {
		return addr
	}
	b := a.As16()
	b[0], b[1], b[2] = 0xfe, 0x80, 1
	if a.Is4() {
		b[2] = 2
	}
	binary.BigEndian.PutUint32(b[4:], link)
	return netip.AddrFrom16(b).String()
}

// sourceCases are rules that count by source: the hosts of a link are one by their link-local
// addresses, those of two links are two.
func sourceCases() []keyCase {
	from := func(host string) []byte {
		return between(host, "fe80::1", packet.ProtoUDP).with(udpBody(1000, 53, 16))
	}
	steps := func(use firewall.StateUse, refused firewall.Reason) []keyStep {
		return []keyStep{
			passes("a host", inBy(2), from("fe80::2"), use),
			drops("another host of the link", inBy(2), from("fe80::3"), refused),
			passes("a host of another link", inBy(3), from("fe80::3"), use),
			drops("the other link again", inBy(3), from("fe80::2"), refused),
		}
	}
	return []keyCase{
		{"limit by link", "add allow udp from any to any limit src-addr 1\n",
			steps(firewall.StateNew, firewall.ReasonLimit)},
		{"limit-rate by link", "add allow udp from any to any limit-rate 1/h src-addr\n",
			steps(firewall.StateNone, firewall.ReasonRate)},
	}
}

// linkCases are flows of link-local ends, on links that have the same addresses.
func linkCases() []keyCase {
	var all []keyCase
	for _, a := range [][2]string{
		{"fe80::1", "fe80::2"}, {"fe80::1", "2001:db8::9"}, {"2001:db8::1", "fe80::2"},
		{"169.254.1.1", "169.254.1.2"},
	} {
		us, peer := a[0], a[1]
		icmp, kinds := icmpOf(netip.MustParseAddr(us).Is6())
		for proto, bodies := range map[uint8][2][]byte{
			// long enough for the fast path
			packet.ProtoUDP: {udpBody(1000, 53, 16), udpBody(53, 1000, 16)},
			packet.ProtoTCP: {tcpBody(1000, 80, 5000, 0, packet.FlagSYN, 500, 0xff, 0),
				tcpBody(80, 1000, 9000, 5001, packet.FlagSYN|packet.FlagACK, 500, 0xff, 0)},
		} {
			there := between(us, peer, packet.Proto(proto)).with(bodies[0])
			back := between(peer, us, packet.Proto(proto)).with(bodies[1])
			about := between(peer, us, icmp).with(icmpBody(kinds[0], 0, 0, there))
			like := between(forged(peer, 2), forged(us, 2), packet.Proto(proto)).with(bodies[1])
			all = append(all, keyCase{fmt.Sprintf("protocol %d from %s to %s", proto, us, peer),
				keepStateRules(us, "out keep-state"),
				[]keyStep{
					passes("the first packet", outBy(2), there, firewall.StateNew),
					drops("an answer on another link", inBy(3), back, firewall.ReasonRule),
					drops("an answer on a third one", inBy(300), back, firewall.ReasonRule),
					drops("an answer from nowhere", inBy(0), back, firewall.ReasonRule),
					drops("an error on another link", inBy(3), about, firewall.ReasonRule),
					passes("an error", inBy(2), about, firewall.StateUntouched),
					passes("the answer", inBy(2), back, firewall.StateHit),
					drops("ends like those of the key", inBy(2), like, firewall.ReasonRule),
					drops("such ends on another link", inBy(3), like, firewall.ReasonRule),
					passes("the same ends on another link", outBy(3), there, firewall.StateNew),
					passes("the answer there", inBy(3), back, firewall.StateHit),
				}})
		}
	}
	udp := between("10.0.0.5", "169.254.169.254", packet.ProtoUDP).with(udpBody(1000, 53, 8))
	answer := between("169.254.169.254", "10.0.0.5", packet.ProtoUDP).with(udpBody(53, 1000, 8))
	odd := between("fe80::1", "fe80:0:1::2", packet.ProtoUDP).with(udpBody(1000, 53, 8))
	return append(all, keyCase{"a service at a link-local address of IPv4 behind a router",
		keepStateRules("10.0.0.5", "in keep-state"), []keyStep{
			passes("in", inBy(2), udp, firewall.StateNew),
			passes("out", through(2, 3), udp, firewall.StateHit),
			passes("the answer, in", inBy(3), answer, firewall.StateHit),
			passes("the answer, out", through(3, 2), answer, firewall.StateHit),
		}}, keyCase{"an address of fe80::/10 with more than a prefix",
		"add 10 allow ip from any to any keep-state\n", []keyStep{
			drops("it", outBy(2), odd, firewall.ReasonNoKey),
		}})
}

// fragmentCases are datagrams whose later fragments come by the interface of the first, and by
// others.
func fragmentCases() []keyCase {
	var all []keyCase
	for _, a := range [][2]string{{"10.0.0.1", "10.0.1.9"}, {"2001:db8::1", "2001:db8:1::9"}} {
		c := between(a[0], a[1], packet.ProtoUDP)
		c.id, c.isFrag = 77, true
		c.body = udpBody(1000, 53, 16)
		first, later := c, c
		first.frag, later.frag = 1, 24
		if c.src.Is4() {
			first.frag, later.frag = 0x2000, 24/8
		}
		f, l := first.bytes(), later.bytes()
		const rules = "add 10 allow udp from any to any\nadd 20 deny ip from any to any\n"
		all = append(all, keyCase{"fragments from " + a[0], rules, []keyStep{
			passes("the first, in", inBy(2), f, firewall.StateNone),
			{"a later one", inBy(2), l, true, firewall.StateNone, firewall.ReasonFragFirst},
			drops("a later one by another interface", inBy(3), l, firewall.ReasonFragUnknown),
			drops("a later one by none", inBy(0), l, firewall.ReasonFragUnknown),
			drops("a later one, out", through(2, 3), l, firewall.ReasonFragUnknown),
			passes("the first, out", through(2, 3), f, firewall.StateNone),
			{"a later one, out", through(2, 3), l, true, firewall.StateNone,
				firewall.ReasonFragFirst},
			drops("a later one from elsewhere, out", through(4, 3), l, firewall.ReasonFragUnknown),
			drops("a later one from the host itself, out", through(0, 3), l,
				firewall.ReasonFragUnknown),
			drops("a later one to elsewhere, out", through(2, 4), l, firewall.ReasonFragUnknown),
		}})
	}
	return all
}
