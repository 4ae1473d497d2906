package peers

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
)

// soon is when a packet is expected that is in time, however long the test pauses.
func soon() time.Time { return time.Now().Add(time.Hour) }

// TestInjectorBypassesTheFilter: one of our packets bypasses the filter once, outbound, and in
// time, although the kernel has filled in its IPv4 header; everything else is evaluated.
func TestInjectorBypassesTheFilter(t *testing.T) {
	i := &injector{expected: map[string]time.Time{}}
	evaluated := 0
	filter := i.bypass(func(_ firewall.Hook, packets [][]byte, _ []uint16, pass []bool) {
		evaluated += len(packets)
		clear(pass)
	})
	build := func(port uint16) []byte {
		b, err := build.Packet(build.IPv4{Src: netip.MustParseAddr("10.88.1.2"),
			Dst: netip.MustParseAddr("10.88.2.2")},
			build.TCP{SrcPort: port, DstPort: 80, Flags: packet.FlagRST})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	await := func(pkt []byte, at time.Time) {
		_, name, ok := dissect(pkt)
		if !ok {
			t.Fatal("the packet cannot be read")
		}
		i.expect(name, at)
	}
	try := func(dir firewall.Direction, packets ...[]byte) []bool {
		pass := make([]bool, len(packets))
		filter(firewall.Hook{Dir: dir}, packets, make([]uint16, len(packets)), pass)
		return pass
	}
	ours, other := build(1000), build(2000)
	await(ours, soon())
	sent := append([]byte(nil), ours...)
	sent[4], sent[5] = 0x12, 0x34 // the kernel's id, and the checksum that goes with it
	sent[10], sent[11] = ours[10]-0x12, ours[11]-0x34
	if got := try(firewall.In, sent); got[0] {
		t.Error("a packet that comes in is taken for ours")
	}
	if got := try(firewall.Out, other, sent, other); got[0] || !got[1] || got[2] {
		t.Errorf("ours between others: %v", got)
	}
	if got := try(firewall.Out, sent); got[0] {
		t.Error("ours passes twice")
	}
	await(ours, time.Now().Add(-2*bypassTime))
	if got := try(firewall.Out, sent); got[0] {
		t.Error("ours passes after its time")
	}
	if evaluated != 5 {
		t.Errorf("%d packets were evaluated, not 5", evaluated)
	}
}

// TestInjectorForgetsLost: packets that cannot be sent are not expected, and those that were lost
// are forgotten after their time, for which not each packet looks at all of them.
func TestInjectorForgetsLost(t *testing.T) {
	i := &injector{four: -1, six: -1, expected: map[string]time.Time{}}
	for _, ends := range [][2]string{{"10.88.1.2", "10.88.2.2"}, {"fd00:88::1", "fd00:88::2"}} {
		src, dst := netip.MustParseAddr(ends[0]), netip.MustParseAddr(ends[1])
		var ip build.Layer = build.IPv4{Src: src, Dst: dst}
		if src.Is6() {
			ip = build.IPv6{Src: src, Dst: dst}
		}
		pkt, err := build.Packet(ip, build.TCP{SrcPort: 1, DstPort: 80, Flags: packet.FlagRST})
		if err != nil {
			t.Fatal(err)
		}
		if i.send(pkt); len(i.expected) != 0 {
			t.Errorf("%s: %d packets are expected that were not sent", dst, len(i.expected))
		}
	}
	begin := time.Now()
	for n := range 3 {
		i.expect([]byte{byte(n)}, begin.Add(time.Duration(n)*bypassTime/3))
	}
	if len(i.expected) != 3 {
		t.Errorf("%d packets are expected within the time of one", len(i.expected))
	}
	if i.expect([]byte{3}, begin.Add(3*bypassTime)); len(i.expected) != 1 {
		t.Errorf("%d packets are expected after the time of three", len(i.expected))
	}
	i.expected["lost"] = begin
	if i.expect([]byte{4}, begin.Add(7*bypassTime/2)); len(i.expected) != 3 {
		t.Error("each packet looks at all that are expected")
	}
}

// TestInjectorBoundsAnswers: of many refused packets at once no more get an ICMP error than the
// limit. They take no resets, of which each gets its own.
func TestInjectorBoundsAnswers(t *testing.T) {
	// the limit is that of a moment, however long the test takes
	i := &injector{answers: rate.NewLimiter(0, answersPerSecond),
		queue: make(chan soft.Probe, 20*answersPerSecond)}
	syn, err := build.Packet(build.IPv4{Src: netip.MustParseAddr("10.88.1.2"),
		Dst: netip.MustParseAddr("10.88.2.2")}, build.TCP{SrcPort: 1000, DstPort: 80,
		Flags: packet.FlagSYN})
	if err != nil {
		t.Fatal(err)
	}
	made := func(a firewall.Answer) int {
		before := len(i.queue)
		for range 10 * answersPerSecond {
			v := firewall.Verdict{Answer: a}
			i.refused(firewall.Hook{Dir: firewall.In}, v, syn, syn)
		}
		return len(i.queue) - before
	}
	if n := made(firewall.AnswerUnreach); n != answersPerSecond {
		t.Errorf("%d ICMP errors", n)
	}
	if n := made(firewall.AnswerReset); n != 10*answersPerSecond {
		t.Errorf("%d resets, want %d", n, 10*answersPerSecond)
	}
}

// TestInjectorQuotesWhatItMay: the answer to a packet that was coalesced has its headers alone.
func TestInjectorQuotesWhatItMay(t *testing.T) {
	i := &injector{answers: rate.NewLimiter(answersPerSecond, answersPerSecond),
		queue: make(chan soft.Probe, 10)}
	pkt, err := build.Packet(build.IPv4{Src: netip.MustParseAddr("10.88.1.2"),
		Dst: netip.MustParseAddr("10.88.2.2")}, build.UDP{SrcPort: 1000, DstPort: 53},
		build.Data(make([]byte, 2000)))
	if err != nil {
		t.Fatal(err)
	}
	i.refused(firewall.Hook{Dir: firewall.In}, firewall.Verdict{Answer: firewall.AnswerUnreach},
		pkt, pkt[:28])
	var q packet.Packet
	if len(i.queue) != 1 || q.Decode((<-i.queue).Packet) != packet.ReasonNone || q.Len() != 28+28 {
		t.Errorf("the answer is %+v", q)
	}
}

// TestTunnelEvaluatesWithoutAllocation: batches that go through the tunnel are evaluated by the
// engine of user space without one allocation, with a packet of ours expected and not. One that was
// lost does not slow the tunnel down for long.
func TestTunnelEvaluatesWithoutAllocation(t *testing.T) {
	engine, err := soft.New(soft.Options{Options: firewall.DefaultOptions()})
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Load(enginetest.Compile(t,
		"add deny tcp from any to any 81\nadd check-state\n"+
			"add allow tcp from any to any keep-state", rule.CompileOptions{})); err != nil {
		t.Fatal(err)
	}
	own := &injector{expected: map[string]time.Time{}, queue: make(chan soft.Probe, injectQueue)}
	clock := func() time.Duration { return clock.Now() }
	filter := own.bypass(overlay.FilterBy(engine.Worker(0), clock,
		own.refused))
	batch, segments, pass := make([][]byte, 64), make([]uint16, 64), make([]bool, 64)
	for i := range batch {
		port := uint16(80)
		if i%8 == 7 {
			port = 81
		}
		if batch[i], err = build.Packet(build.IPv4{Src: netip.MustParseAddr("10.88.1.2"),
			Dst: netip.MustParseAddr("10.88.2.2")},
			build.TCP{SrcPort: 1000, DstPort: port, Flags: packet.FlagSYN}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string) {
		t.Helper()
		for _, dir := range []firewall.Direction{firewall.Out, firewall.In} {
			if n := testing.AllocsPerRun(100, func() {
				filter(firewall.Hook{Dir: dir}, batch, segments, pass)
			}); n != 0 {
				t.Errorf("%s: %v allocations for a batch of direction %d", what, n, dir)
			}
			for i := range pass {
				if pass[i] != (i%8 != 7) {
					t.Errorf("%s: packet %d of direction %d passes: %v", what, i, dir, pass[i])
				}
			}
		}
	}
	check("nothing expected")
	own.expect([]byte("some packet"), soon())
	if !own.expects() {
		t.Error("a packet of ours is not expected")
	}
	check("a packet expected")
	own.expect([]byte("a lost one"), time.Now().Add(-2*bypassTime))
	if own.expects() {
		t.Error("a packet that was lost is expected for ever")
	}
}

// TestInjectorAnswersForNoPeer: who sends to an address of the tunnel that no peer has gets the
// ICMP error that WireGuard of Linux sends, and nothing for an error of its own.
func TestInjectorAnswersForNoPeer(t *testing.T) {
	i := &injector{answers: rate.NewLimiter(answersPerSecond, answersPerSecond),
		queue: make(chan soft.Probe, 10)}
	udp := build.UDP{SrcPort: 1000, DstPort: 53}
	four := build.IPv4{Src: netip.MustParseAddr("10.88.1.2"), Dst: netip.MustParseAddr("10.88.2.2")}
	six := build.IPv6{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2")}
	for _, c := range []struct {
		layers     []build.Layer
		kind, code uint8
		answered   bool
	}{
		{[]build.Layer{four, udp}, 3, 1, true},
		{[]build.Layer{six, udp}, 1, 3, true},
		{[]build.Layer{four, build.ICMP{Type: 3}, build.Data(make([]byte, 28))}, 0, 0, false},
	} {
		pkt, err := build.Packet(c.layers...)
		if err != nil {
			t.Fatal(err)
		}
		i.noPeer(pkt)
		if len(i.queue) == 0 {
			if c.answered {
				t.Errorf("no answer to % x", pkt)
			}
			continue
		}
		p := <-i.queue
		var q packet.Packet
		if q.Decode(p.Packet) != packet.ReasonNone || !q.ICMPError() || p.To != firewall.In ||
			q.ICMPType() != c.kind || q.ICMPCode() != c.code {
			t.Errorf("answer to % x: %v % x", pkt, p.To, p.Packet)
		}
	}
}
