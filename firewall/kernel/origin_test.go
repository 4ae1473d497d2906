package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// frameTo is a UDP datagram to port 9 in an Ethernet frame.
func frameTo(t testing.TB, mac net.HardwareAddr, from, to netip.Addr, text string) []byte {
	t.Helper()
	var header build.Layer = build.IPv4{Src: from, Dst: to, TTL: 64}
	etherType := []byte{8, 0}
	if from.Is6() {
		header, etherType = build.IPv6{Src: from, Dst: to, HopLimit: 64}, []byte{0x86, 0xdd}
	}
	ip := enginetest.Packet(t, header, build.UDP{SrcPort: 9999, DstPort: 9},
		build.Data([]byte(text)))
	return slices.Concat(mac, []byte{2, 0, 0, 0, 0, 9}, etherType, ip)
}

// received returns which of the sources reach port 9 of a pod from the NIC. What was sent in their
// names came in before what the neighbour said last in its own.
func (v *cluster) received(to *podNode, sources []string) (got []string) {
	v.t.Helper()
	nic := v.host.Link("eth0")
	for i, family := range []string{"udp4", "udp6"} {
		c, err := to.ListenPacket(family, ":9")
		v.must(err)
		var frames [][]byte
		for _, s := range append(slices.Clone(sources), []string{"192.0.2.2", "2001:db8::2"}[i]) {
			if a := netip.MustParseAddr(s); a.Is6() == (i == 1) {
				frames = append(frames, frameTo(v.t, nic.HardwareAddr, a, to.endpoint.Addrs[i], s))
			}
		}
		frames[len(frames)-1] = frameTo(v.t, nic.HardwareAddr,
			netip.MustParseAddr([]string{"192.0.2.2",
				"2001:db8::2"}[i]), to.endpoint.Addrs[i], "end")
		v.must(inject(v.outside, frames))
		b := make([]byte, 100)
		for {
			v.must(c.SetReadDeadline(time.Now().Add(testTimeout)))
			n, _, err := c.ReadFrom(b)
			v.must(err)
			if string(b[:n]) == "end" {
				break
			}
			got = append(got, string(b[:n]))
		}
		v.must(c.Close())
	}
	return got
}

// setNIC changes the NIC's settings, in the kernel and in the engine.
func (v *cluster) setNIC(local bool, reverse firewall.ReversePath) {
	v.t.Helper()
	v.must(v.host.SetSysctl("net.ipv4.conf.eth0.accept_local", fmt.Sprint(bit(local))))
	for _, dev := range []string{"all", "eth0"} {
		v.must(v.host.SetSysctl("net.ipv4.conf."+dev+".rp_filter", fmt.Sprint(reverse)))
	}
	ifs := slices.Clone(v.ifs)
	for i := range ifs {
		if ifs[i].Name == "eth0" {
			ifs[i].AcceptLocal, ifs[i].ReversePath = local, reverse
		}
	}
	v.ifs = ifs
	v.must(v.engine.SetInterfaces(ifs))
}

// addLocal adds local routes, in the kernel and in the engine.
func (v *cluster) addLocal(prefixes ...string) {
	v.t.Helper()
	ifs := slices.Clone(v.ifs)
	for _, p := range prefixes {
		v.host.IP("route add local " + p + " dev lo")
		ifs[0].Local = append(ifs[0].Local, netip.MustParsePrefix(p))
	}
	v.ifs = ifs
	v.must(v.engine.SetInterfaces(ifs))
}

// TestSourcesFromTheNIC: what the stack does not take from a NIC, the fast path does not hand to a
// pod. The stack itself, without the hook at the NIC, shows what that is. It does not mind the
// host's own addresses of IPv6, nor pods' addresses; Weir does.
func TestSourcesFromTheNIC(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	nic := v.host.Link("eth0")
	link := "fe80::99"
	sources := []string{"192.0.2.1", "10.88.0.1", "10.88.0.3", "127.0.0.1", "127.9.9.9",
		"224.0.0.5",
		"255.255.255.255", "0.0.0.0", "0.1.2.3", "240.0.0.1", "192.0.2.77", "198.51.100.7",
		"203.0.113.7",
		"2001:db8::1", "fd00:88::1", "fd00:88::3", "::1", "::", "ff02::5", link, "2001:db8::77",
		"2001:db8:9::7", "198.18.5.9", "2001:db8:a::9"}
	v.addLocal("198.18.5.0/24", "2001:db8:a::/64")
	v.must(v.host.Netlink().ReplaceRoute(routeVia("203.0.113.0/24", "podb", v)))
	refused := map[string]bool{"10.88.0.3": true, "fd00:88::3": true, "2001:db8::1": true,
		"fd00:88::1": true, "2001:db8:a::9": true}
	for _, c := range []struct {
		local   bool
		reverse firewall.ReversePath
		some    []string // that pass, to see that the control says something
		none    []string
	}{
		{false, firewall.ReverseNone,
			[]string{"192.0.2.77", "198.51.100.7", "203.0.113.7", "240.0.0.1"},
			[]string{"192.0.2.1", "10.88.0.1", "0.0.0.0", "198.18.5.9"}},
		{false, firewall.ReverseLoose, []string{"192.0.2.77", "203.0.113.7"},
			[]string{"198.51.100.7", "192.0.2.1"}},
		{false, firewall.ReverseStrict, []string{"192.0.2.77"},
			[]string{"203.0.113.7", "198.51.100.7", "10.88.0.1"}},
		{true, firewall.ReverseNone, []string{"192.0.2.1", "10.88.0.1", "198.18.5.9"},
			[]string{"127.0.0.1", "0.0.0.0"}},
	} {
		v.setNIC(c.local, c.reverse)
		spoofed, martian := v.drops(firewall.ReasonSpoof), v.drops(firewall.ReasonMartian)
		got := v.received(v.a, sources)
		again := v.received(v.a, sources) // by the forwarding cache
		spoofed, martian = v.drops(firewall.ReasonSpoof)-spoofed,
			v.drops(firewall.ReasonMartian)-martian
		v.must(v.host.Do(func() error { return v.engine.Detach(uint32(nic.Index)) }))
		control := v.received(v.a, sources)
		v.must(v.host.Do(func() error {
			_, err := v.engine.Attach(uint32(nic.Index))
			return err
		}))
		for _, s := range c.some {
			if !slices.Contains(control, s) {
				t.Errorf("%v: without Weir nothing comes from %s", c, s)
			}
		}
		for _, s := range c.none {
			if slices.Contains(control, s) {
				t.Errorf("%v: without Weir something comes from %s", c, s)
			}
		}
		want := slices.DeleteFunc(control, func(s string) bool {
			own6 := s == "2001:db8::1" || s == "fd00:88::1" || s == "2001:db8:a::9"
			return refused[s] && !(own6 && c.local)
		})
		if !slices.Equal(got, want) || !slices.Equal(again, want) {
			t.Errorf("local %v, reverse %v: with Weir\n%v, again\n%v, without\n%v", c.local,
				c.reverse, got, again, want)
		}
		if spoofed < 2 || martian < 2*6 {
			t.Errorf("%d packets counted as spoofed, %d as martians", spoofed, martian)
		}
	}
}

// TestNeighbourDiscoveryExemptsNoOther: beside pods, neighbour discovery from an address of the
// host passes, so that the host learns of another host with its address. Then other packets with
// the same addresses are refused all the same, on the same CPU.
func TestNeighbourDiscoveryExemptsNoOther(t *testing.T) {
	t.Parallel()
	f := newFrames(t, openRules)
	own := netip.MustParseAddr("2001:db8::1")
	in := func(ip []byte) (code int32) {
		code, _ = f.run(f.engine.objects.WeirIn, 0, f.nic.index,
			slices.Concat(f.nic.mac[:], []byte{2, 0, 0, 0, 0, 9, 0x86, 0xdd}, ip))
		return code
	}
	for _, to := range []netip.Addr{own, f.a.endpoint.Addrs[1]} {
		header := build.IPv6{Src: own, Dst: to, HopLimit: 255}
		f.must(onFirstCPU(func() error {
			if code := in(enginetest.Packet(t, header, build.ICMPv6{Type: 136},
				build.Data(own.AsSlice()))); code == wasShot {
				t.Errorf("neighbour discovery to %s is refused", to)
			}
			if code := in(enginetest.Packet(t, header, build.UDP{SrcPort: 9, DstPort: 9},
				build.Data(make([]byte, 20)))); code != wasShot {
				t.Errorf("a datagram to %s: %d", to, code)
			}
			return nil
		}))
	}
}

// TestOwnAddressFromOutside: on a host without pods, a packet from outside with an address of the
// host as its source makes no state and counts for no source. So a flood of them refuses the host
// nothing. What the stack itself loops back, and neighbour discovery, pass.
func TestOwnAddressFromOutside(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxPerSource = 20
	g := newPairLabWith(t, "add 1 check-state\nadd allow ip from any to any keep-state\n", o)
	nic := g.server.Link("eth0")
	for i, own := range []string{"10.0.0.1", "fd00::1"} {
		var frames [][]byte
		to := netip.MustParseAddr(own)
		for port := range 60 {
			f := frameTo(t, nic.HardwareAddr, to, to, "mine")
			f[14+[]int{20, 40}[i]], f[14+[]int{20, 40}[i]+1] = 0x40, byte(port)
			frames = append(frames, f)
		}
		if err := inject(g.client, frames); err != nil {
			t.Fatal(err)
		}
	}
	nstest.Eventually(t, "they are counted as spoofed", func() bool {
		return g.drops(t, firewall.ReasonSpoof) == 120
	})
	for _, s := range g.states(t) {
		if a := s.From.Addr(); s.Proto == packet.ProtoUDP &&
			(a == netip.MustParseAddr("10.0.0.1") || a == netip.MustParseAddr("fd00::1")) {
			t.Fatalf("a spoofed packet has made a state: %+v", s)
		}
	}
	if n := g.engine.sourcesInUse(t); n > 2*20 {
		t.Errorf("sources count %d", n)
	}
	// With accept_local these may be another host's.
	g.setInterface(t, func(i *firewall.Interface) { i.AcceptLocal = true })
	if err := inject(g.client, [][]byte{frameTo(t, nic.HardwareAddr,
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.1"), "mine")}); err != nil {
		t.Fatal(err)
	}
	nstest.Eventually(t, "accept_local takes it", func() bool {
		return len(g.states(t)) > 0 && g.drops(t, firewall.ReasonSpoof) == 120
	})
}

// TestOwnAddressWithoutStates: where the rules keep no states, verdicts are cached without the
// source if no rule reads it. What comes with an address of the host is dropped all the same.
func TestOwnAddressWithoutStates(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, "add allow ip from any to any\n")
	nic := g.server.Link("eth0")
	for own, honest := range map[string]string{"10.0.0.1": "10.0.0.77", "fd00::1": "fd00::77"} {
		to := netip.MustParseAddr(own)
		var frames [][]byte
		for range 20 { // the first ones take the slow path
			frames = append(frames,
				frameTo(t, nic.HardwareAddr, netip.MustParseAddr(honest), to, "honest"),
				frameTo(t, nic.HardwareAddr, to, to, "mine"))
		}
		if err := inject(g.client, frames); err != nil {
			t.Fatal(err)
		}
	}
	nstest.Eventually(t, "they are counted as spoofed", func() bool {
		return g.drops(t, firewall.ReasonSpoof) == 40
	})
}

// TestLocalRouteKeepsTheFastPath: where a local route leads to a prefix, packets from other sources
// take the fast path, with and without states. Those from the prefix are dropped.
func TestLocalRouteKeepsTheFastPath(t *testing.T) {
	t.Parallel()
	for _, rules := range []string{"add allow udp from any to any keep-state\n",
		"add allow udp from any to any\n"} {
		g := newPairLab(t, rules)
		local := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"),
			netip.MustParsePrefix("2001:db8:9::/64")}
		if err := g.engine.SetInterfaces([]firewall.Interface{{Index: 1, Name: "lo", Local: local},
			{Index: g.index, Name: "eth0"}}); err != nil {
			t.Fatal(err)
		}
		walked := g.engine.noteLookUps(t, "one_step", "images")
		send := func(from, to netip.Addr, port uint16) (code int32) {
			return g.runOnFirstCPU(t, false, from, to, build.UDP{SrcPort: port, DstPort: 9})
		}
		for _, c := range [][3]string{{"203.0.114.7", "203.0.113.7", "10.0.0.1"},
			{"2001:db8:a::7", "2001:db8:9::7", "fd00::1"}} {
			other, own, to := netip.MustParseAddr(c[0]), netip.MustParseAddr(c[1]),
				netip.MustParseAddr(c[2])
			send(other, to, 1) // makes the verdict known
			if known := walked(); !known {
				t.Errorf("%s%s: nothing was noted", rules, other)
			}
			if code := send(other, to, 2); code != wentUp || walked() {
				t.Errorf("%s%s: %d, or it walked the rules", rules, other, code)
			}
			if code := send(own, to, 3); code != wasShot {
				t.Errorf("%s%s: %d", rules, own, code)
			}
		}
	}
}

// TestOwnAddressMovesNoState: segments from outside with an address of the host as their source
// do not answer in its name. An outsider that could would make established states of forged
// sources, which nothing evicts. The checksums are wrong, so the host itself says nothing.
func TestOwnAddressMovesNoState(t *testing.T) {
	g := newPairLab(t, "add 1 check-state\nadd allow tcp from any to me 80 setup keep-state\n"+
		"add allow ip from any to any keep-state\n")
	nic := g.server.Link("eth0")
	own, forged := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.77")
	segment := func(from, to netip.Addr, tcp build.TCP) []byte {
		ip := enginetest.Packet(t, build.IPv4{Src: from, Dst: to, TTL: 64}, tcp)
		ip[20+16] ^= 0xff // the checksum
		return slices.Concat(nic.HardwareAddr, []byte{2, 0, 0, 0, 0, 9}, []byte{8, 0}, ip)
	}
	const n = 20 // the first ones take the slow path
	for port := range uint16(n) {
		err := inject(g.client, [][]byte{
			segment(forged, own, build.TCP{SrcPort: 1000 + port, DstPort: 80, Seq: 1,
				Flags: packet.FlagSYN, Window: 1000}),
			segment(own, forged, build.TCP{SrcPort: 80, DstPort: 1000 + port, Seq: 9, Ack: 2,
				Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}),
			segment(forged, own, build.TCP{SrcPort: 1000 + port, DstPort: 80, Seq: 2, Ack: 10,
				Flags: packet.FlagACK, Window: 1000}),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	made := 0
	nstest.Eventually(t, "all have arrived", func() bool {
		made = 0
		for _, s := range g.states(t) {
			if s.From.Addr() != forged {
				continue
			}
			made++
			if s.Phase == flow.PhaseEstablished {
				t.Fatalf("%+v", s)
			}
		}
		return made == n && g.drops(t, firewall.ReasonSpoof) >= n
	})
}

// TestOwnAddressMovesNoEstablishedState: nor does a packet with the addresses and ports of a flow
// of the host that the fast path knows. The stack itself would forward it with IPv6.
func TestOwnAddressMovesNoEstablishedState(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, "add 1 check-state\nadd allow ip from any to any keep-state\n")
	syn, ack := build.TCP{SrcPort: 4000, DstPort: 7, Seq: 9, Flags: packet.FlagSYN, Window: 1000},
		build.TCP{SrcPort: 4000, DstPort: 7, Seq: 10, Ack: 100, Flags: packet.FlagACK, Window: 1000}
	synAck := build.TCP{SrcPort: 7, DstPort: 4000, Seq: 99, Ack: 10,
		Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}
	there, back := build.UDP{SrcPort: 4000, DstPort: 7}, build.UDP{SrcPort: 7, DstPort: 4000}
	spoofed := uint64(0)
	for own, peer := range map[string]string{"10.0.0.1": "10.0.0.77", "fd00::1": "fd00::77"} {
		own, peer := netip.MustParseAddr(own), netip.MustParseAddr(peer)
		for _, flow := range [][3]build.Layer{{syn, synAck, ack}, {there, back, there}} {
			for i, l := range flow {
				from, to := own, peer
				if i == 1 {
					from, to = peer, own
				}
				if code := g.runOnFirstCPU(t, i != 1, from, to, l); code != wentUp {
					t.Fatalf("%s > %s %+v: %d", from, to, l, code)
				}
			}
			before := g.engine.sidesOf(t, own)
			for range 3 {
				if code := g.runOnFirstCPU(t, false, own, peer, flow[2]); code != wasShot {
					t.Errorf("%s > %s %+v from outside: %d", own, peer, flow[2], code)
				}
				spoofed++
			}
			if after := g.engine.sidesOf(t, own); after != before {
				t.Errorf("%s > %s %+v: the states are\n%s, before\n%s", own, peer, flow[2], after,
					before)
			}
		}
	}
	if n := g.drops(t, firewall.ReasonSpoof); n != spoofed {
		t.Errorf("%d packets were counted as spoofed, not %d", n, spoofed)
	}
}

// runOnFirstCPU has a packet come in or leave at the server's NIC.
func (g *pairLab) runOnFirstCPU(t *testing.T, out bool, from, to netip.Addr,
	l build.Layer) (code int32) {
	t.Helper()
	var ip build.Layer = build.IPv4{Src: from, Dst: to}
	if from.Is6() {
		ip = build.IPv6{Src: from, Dst: to}
	}
	// the fast path reads as much as a TCP header
	b := enginetest.Packet(t, ip, l, build.Data(make([]byte, 20)))
	context := make([]byte, skbSize)
	binary.NativeEndian.PutUint32(context[40:], g.index)
	p := g.engine.objects.WeirIn
	if out {
		p = g.engine.objects.WeirOut
	}
	err := g.server.Do(func() error {
		return onFirstCPU(func() error {
			ret, err := p.Run(&ebpf.RunOptions{Data: append(frameFor(b), b...), Context: context})
			code = int32(ret)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// sidesOf returns the sides of the states of an address.
func (e *Engine) sidesOf(t *testing.T, a netip.Addr) (sides string) {
	t.Helper()
	w := wordsOf(a)
	for x, err := range e.entries() {
		if err != nil {
			t.Fatal(err)
		}
		if x.addr[0] == w.Hi && x.addr[1] == w.Lo || x.addr[2] == w.Hi && x.addr[3] == w.Lo {
			sides += fmt.Sprintf("%x %+v\n", x.tag, x.sides)
		}
	}
	return sides
}

func (g *pairLab) drops(t *testing.T, r firewall.Reason) uint64 {
	t.Helper()
	all, err := g.engine.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	return firewall.ByReason(all)[r]
}

// setInterface gives the engine other facts about the server's NIC.
func (g *pairLab) setInterface(t *testing.T, change func(*firewall.Interface)) {
	t.Helper()
	ifs := slices.Clone(g.engine.ifs)
	for n := range ifs {
		if ifs[n].Index == g.index {
			change(&ifs[n])
		}
	}
	if err := g.engine.SetInterfaces(ifs); err != nil {
		t.Fatal(err)
	}
}

func routeVia(dst, dev string, v *cluster) nl.Route {
	v.t.Helper()
	l := v.host.Link(dev)
	return nl.Route{Dst: netip.MustParsePrefix(dst), Link: l.Index}
}
