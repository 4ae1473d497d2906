package kernel

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// Packets of the host itself, on the fast path where there are pods.

// hop is a frame at a hook, and what becomes of it.
type hop struct {
	what        string
	out         bool
	recv, index uint32
	frame       []byte
	code        int32
	left        []byte
}

const linkHeader = 14 // its addresses depend on when the route was looked up

func (f *frames) hop(h *hop) (code int32, left []byte) {
	p := f.engine.objects.WeirIn
	if h.out {
		p = f.engine.objects.WeirOut
	}
	for _, link := range f.podLinks {
		if h.index == link.index {
			copy(h.frame, link.mac[:])
		}
	}
	return f.run(p, h.recv, h.index, h.frame)
}

// hopFrame returns a packet as it comes in or leaves. UDP has enough data for the fast path.
func (f *frames) hopFrame(from, to netip.AddrPort, l build.Layer) []byte {
	n := 0
	switch s := l.(type) {
	case build.TCP:
		s.SrcPort, s.DstPort = from.Port(), to.Port()
		l = s
	case build.UDP:
		s.SrcPort, s.DstPort = from.Port(), to.Port()
		l, n = s, 18
	}
	var header build.Layer = build.IPv4{Src: from.Addr(), Dst: to.Addr(), TTL: 64}
	etherType := []byte{8, 0}
	if from.Addr().Is6() {
		header, etherType = build.IPv6{Src: from.Addr(), Dst: to.Addr(), HopLimit: 64},
			[]byte{0x86, 0xdd}
	}
	return slices.Concat(f.nic.mac[:], []byte{2, 0, 0, 0, 0, 9}, etherType,
		enginetest.Packet(f.t, header, l, build.Data(make([]byte, n))))
}

// endsOf returns the ends of such a packet, and whether it is a segment.
func endsOf(frame []byte) (from, to netip.AddrPort, tcp bool) {
	ip, size, at, proto := frame[linkHeader:], 4, 12, frame[linkHeader+9]
	if ip[0]>>4 == 6 {
		size, at, proto = 16, 8, ip[6]
	}
	l4 := ip[at+2*size:]
	ends := [2]netip.AddrPort{}
	for i := range ends {
		a, _ := netip.AddrFromSlice(ip[at+i*size : at+(i+1)*size])
		ends[i] = end(a, int(l4[2*i])<<8|int(l4[2*i+1]))
	}
	return ends[0], ends[1], proto == 6
}

// TestHostKeepsTheFastPath: packets of the host's established connections, and refused ones, take
// the fast path beside pods, masquerade and published ports. What may be translated does not: here
// it is lost.
func TestHostKeepsTheFastPath(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 2999)
	f.publish(8080, 80)
	syn, ack := build.TCP{Seq: 99, Flags: packet.FlagSYN, Window: 1000},
		build.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagACK, Window: 1000}
	synAck := build.TCP{Seq: 999, Ack: 100, Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}
	client, ssh, dns := end(outsideAddr, 4000), end(hostAddr, 22), end(hostAddr, 53)
	back := build.TCP{Seq: 1000, Ack: 100, Flags: packet.FlagACK, Window: 1000}
	f.goes("the pod", end(podA, 2500), end(outsideAddr, 53), build.UDP{}, end(hostAddr, 2500),
		end(outsideAddr, 53))
	in, out := func(from, to netip.AddrPort, l build.Layer) *hop {
		return &hop{index: f.nic.index, frame: f.hopFrame(from, to, l)}
	}, func(from, to netip.AddrPort, l build.Layer) *hop {
		return &hop{index: f.nic.index, out: true, frame: f.hopFrame(from, to, l)}
	}
	run := func(h *hop) (code int32) {
		f.must(onFirstCPU(func() error {
			code, _ = f.hop(h)
			return nil
		}))
		return code
	}
	for _, h := range []*hop{in(client, ssh, syn), out(ssh, client, synAck), in(client, ssh, ack),
		out(ssh, client, back), in(client, dns, build.UDP{}), out(dns, client, build.UDP{}),
		in(client, dns, build.UDP{})} {
		run(h)
	}
	f.must(f.engine.objects.SlowPaths.Delete(uint32(slowIn)))
	f.must(f.engine.objects.SlowPaths.Delete(uint32(slowOut)))
	for _, h := range []*hop{in(client, ssh, ack), out(ssh, client, back),
		in(client, dns, build.UDP{}), out(dns, client, build.UDP{})} {
		if code := run(h); code != wentUp {
			t.Errorf("%x, out %v: %d", h.frame, h.out, code)
		}
	}
	before := f.decisions(t)
	lost := []*hop{in(end(outsideAddr, 53), end(hostAddr, 2500), build.UDP{}),
		in(client, end(hostAddr, 8080), build.UDP{}), in(client, end(podA, 80), build.UDP{}),
		in(end(podA, 9), ssh, ack), out(end(podA, 2500), end(outsideAddr, 53), build.UDP{})}
	for _, h := range lost {
		if code := run(h); code != wasShot {
			t.Errorf("%x, out %v, without the slow path: %d", h.frame, h.out, code)
		}
	}
	if after := f.decisions(t); !maps.Equal(before, after) {
		t.Errorf("the fast path has counted them: %v, before %v", after, before)
	}
}

// hostPathRules keep states for most, none for some, and refuse some.
const hostPathRules = "add 1 check-state\nadd 2 deny ip from any to any 666\n" +
	"add 3 allow udp from any to any 7\n" +
	"add 4 deny udp from any 53 to 10.88.0.2,fd00:88::2 in\n" +
	"add 5 allow tcp from any to any setup keep-state\n" +
	"add 6 allow udp from any to any keep-state\nadd 7 allow icmp from any to any\n" +
	"add 8 allow ipv6-icmp from any to any\nadd 9 deny ip from any to any\n"

// sixOf are the addresses of IPv6 that stand for those of IPv4 in half of the packets: some of them
// have keys with a link.
var sixOf = map[string]string{"192.0.2.1": "2001:db8::1", "192.0.2.2": "2001:db8::2",
	"192.0.2.9": "fe80::9", "10.88.0.1": "fe80::1", "10.88.0.2": "fd00:88::2",
	"10.88.0.3": "fd00:88::3", "127.0.0.9": "::1"}

// hostMix makes random packets of the host, of pods and of others, which share ports.
type hostMix struct {
	*frames
	r    *rand.Rand
	seen [][]byte // frames that have left, to be answered
}

func (m *hostMix) next() *hop {
	r, link := m.r, m.podLinks[podA]
	other := netip.MustParseAddr("192.0.2.9")
	local := pick(r, hostAddr, hostAddr, hostAddr, netip.MustParseAddr("10.88.0.1"), podA,
		other)
	port := func() int { return pick(r, 7, 53, 80, 666, 2000, 2000, 8080, 8081) }
	remote := pick(r, outsideAddr, outsideAddr, outsideAddr, other, podA, podB, hostAddr,
		netip.MustParseAddr("127.0.0.9"))
	var l build.Layer = build.UDP{}
	if r.IntN(2) == 0 {
		s := (&natMatch{r: r}).segment()
		l = build.TCP{Seq: s.seq, Ack: s.ack, Flags: s.flags, Window: 1000}
	}
	from, to := end(remote, port()), end(local, port())
	h := &hop{index: m.nic.index}
	switch n := r.IntN(6); {
	case n < 2 && len(m.seen) > 0: // an answer, or what the other end sends next
		var tcp bool
		if to, from, tcp = endsOf(m.seen[r.IntN(len(m.seen))]); r.IntN(4) == 0 {
			from, to = to, from
		}
		if l = build.Layer(build.UDP{}); tcp {
			s := (&natMatch{r: r}).segment()
			l = build.TCP{Seq: s.seq, Ack: s.ack, Flags: s.flags, Window: 1000}
		}
		own := from.Addr().String()
		h.out = own == "192.0.2.1" || own == "2001:db8::1"
		if !h.out && r.IntN(4) == 0 { // the stack has routed it
			h.out, h.recv = true, h.index
		}
	case n == 2:
		from, to, h.out = to, from, true
		h.recv = pick(r, 0, 0, 0, 0, link.index, h.index)
	case n == 3:
		from, h.index = end(podA, port()), link.index
		to = end(pick(r, outsideAddr, outsideAddr, hostAddr, podB), port())
	case n == 4: // the host to a pod
		from, to, h.out, h.index = end(hostAddr, port()), end(podA, port()), true, link.index
	}
	if six := sixOf[from.Addr().String()]; six != "" && r.IntN(2) == 0 {
		from = netip.AddrPortFrom(netip.MustParseAddr(six), from.Port())
		to = netip.AddrPortFrom(netip.MustParseAddr(sixOf[to.Addr().String()]), to.Port())
	}
	h.what = fmt.Sprintf("%s > %s %+v, out %v", from, to, l, h.out)
	h.frame = m.hopFrame(from, to, l)
	return h
}

// counts are those of all packets, but for ICMPv6, which the kernel sends by itself.
func (m *hostMix) counts() map[string]uint64 {
	n := map[string]uint64{}
	all, err := m.engine.Decisions()
	m.must(err)
	for d, c := range all {
		if d.Reason != firewall.ReasonRule && d.Reason != firewall.ReasonEssential {
			n[fmt.Sprintf("packets %+v", d)], n[fmt.Sprintf("bytes %+v", d)] = c.Packets, c.Bytes
		}
	}
	rules, err := m.engine.Rules()
	m.must(err)
	for _, r := range rules {
		if r.Number != 8 {
			n[fmt.Sprint("packets of rule ", r.Number)] = r.Packets
			n[fmt.Sprint("bytes of rule ", r.Number)] = r.Bytes
		}
	}
	pods, err := m.engine.Endpoints()
	m.must(err)
	for _, p := range pods {
		n[fmt.Sprint("dropped to pod ", p.Index)] = p.DropsIn
		n[fmt.Sprint("dropped from pod ", p.Index)] = p.DropsOut
	}
	return n
}

// states are all entries of the table, with what does not depend on the time.
func (m *hostMix) states() map[string]string {
	all := map[string]string{}
	for x, err := range m.engine.entries() {
		m.must(err)
		name := fmt.Sprintf("%x %x", x.tag, x.addr)
		for _, s := range x.sides {
			all[name] += fmt.Sprint(s.Flags, s.Packets, s.Bytes, s.End, s.Ack, s.Edge, s.Win, "; ")
		}
	}
	return all
}

// TestHostPacketsOnBothPaths: where there are pods, and translations with the host's own ports, the
// fast path does with each packet what the slow path does, and counts the same. A capture has all
// packets take the slow path.
func TestHostPacketsOnBothPaths(t *testing.T) {
	f := newFrames(t, hostPathRules)
	f.setConfig(func(c *weirConfig) { // nothing expires meanwhile
		for _, life := range []*int64{&c.LifeSyn, &c.LifeEstablished, &c.LifeFin, &c.LifeRst,
			&c.LifeUdp, &c.LifeUdpReply, &c.LifeShort} {
			*life = int64(time.Hour)
		}
	})
	f.masquerade(2000, 2999)
	f.must(f.host.Do(func() error {
		return f.engine.SetPublished([]forward.Published{
			{Proto: packet.ProtoTCP, Host: end(hostAddr, 8080), Pod: end(podA, 80)},
			{Proto: packet.ProtoUDP, Host: end(netip.IPv4Unspecified(), 8081), Pod: end(podA, 53)},
			{Proto: packet.ProtoTCP, Host: end(netip.MustParseAddr("2001:db8::1"), 8080),
				Pod: end(f.a.endpoint.Addrs[1], 80)},
			{Proto: packet.ProtoUDP, Host: end(netip.IPv6Unspecified(), 8081),
				Pod: end(f.a.endpoint.Addrs[1], 53)},
		})
	}))
	first := testrand.Seed(t)
	for n := range uint64(12) {
		if n == 6 {
			f.forwardToOthers()
		}
		f.bothPaths(t, first+n)
	}
}

// forwardToOthers adds translations for a host behind this one: the rules see its packets twice.
func (f *frames) forwardToOthers() {
	other := netip.MustParseAddr("192.0.2.9")
	f.must(f.engine.SetMasquerade(forward.Masquerade{Sources: podRanges, Except: podRanges,
		Others: []forward.SourceNAT{{Source: netip.PrefixFrom(other, 32)}},
		Ports:  []forward.PortRange{{First: 2000, Last: 2999}}}))
	f.must(f.host.Do(func() error {
		return f.engine.SetForwards([]forward.Published{
			{Proto: packet.ProtoTCP, Host: end(hostAddr, 80), Pod: end(other, 80)},
			{Proto: packet.ProtoUDP, Host: end(hostAddr, 2000), Pod: end(other, 53)},
		})
	}))
}

// bothPaths sends a sequence along the slow path, which the fast path has to repeat.
func (f *frames) bothPaths(t *testing.T, seed uint64) {
	t.Helper()
	m := &hostMix{frames: f, r: rand.New(rand.NewPCG(seed, 15))}
	var all []*hop
	want, wantStates := m.pass(true, func() {
		for range 600 {
			h := m.next()
			h.code, h.left = f.hop(h)
			if all = append(all, h); h.code != wasShot {
				m.seen = append(m.seen, h.left)
			}
		}
	})
	have, haveStates := m.pass(false, func() {
		for i, h := range all {
			code, left := f.hop(h)
			if code != h.code || !bytes.Equal(left[linkHeader:], h.left[linkHeader:]) {
				t.Fatalf("sequence %d, packet %d, %s: %d, on the slow path %d\n%x\n%x", seed, i,
					h.what, code, h.code, left, h.left)
			}
		}
	})
	differences(t, want, have)
	differences(t, wantStates, haveStates)
	if t.Failed() {
		t.Fatalf("sequence %d", seed)
	}
}

// pass calls f with an empty table, and returns what was counted, and the states.
func (m *hostMix) pass(slow bool, f func()) (counted map[string]uint64, states map[string]string) {
	m.must(m.engine.endWhere(func(*entry) bool { return true }))
	m.setConfig(func(c *weirConfig) {
		c.Listen &^= 1 << eventPacket
		if slow {
			c.Listen |= 1 << eventPacket
		}
	})
	m.must(m.engine.putForwardingLocked()) // empties the forwarding cache
	before := m.counts()
	f()
	counted = m.counts()
	for what, n := range before {
		counted[what] -= n
	}
	maps.DeleteFunc(counted, func(_ string, n uint64) bool { return n == 0 })
	return counted, m.states()
}

func differences[T comparable](t *testing.T, slow, fast map[string]T) {
	t.Helper()
	for what, n := range fast {
		if w, ok := slow[what]; !ok || w != n {
			t.Errorf("%s: %v, on the slow path %v (%v)", what, n, w, ok)
		}
	}
	for what, n := range slow {
		if _, ok := fast[what]; !ok {
			t.Errorf("%s is missing, on the slow path %v", what, n)
		}
	}
}
