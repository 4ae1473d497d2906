package kernel

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet/build"
)

// sourcesInUse adds up the cells of the counters of sources: two for each half-open state.
func (e *Engine) sourcesInUse(t *testing.T) (sum int) {
	t.Helper()
	m, err := e.objects.Sources.Memory()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, m.Size())
	if _, err := m.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 4 {
		sum += int(*(*int32)(unsafe.Pointer(&b[i])))
	}
	return sum
}

// sourceBench is an engine that limits the half-open states of a source, with a clock that the test
// sets.
type sourceBench struct {
	t   *testing.T
	e   *Engine
	now time.Duration
}

func newSourceBench(t *testing.T) *sourceBench {
	t.Helper()
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 20000, 5000, 100
	b := &sourceBench{t: t, e: newPartEngine(t, o), now: time.Second}
	if err := b.e.Load(compile(t,
		"add check-state\nadd allow udp from any to any keep-state\n")); err != nil {
		t.Fatal(err)
	}
	b.e.clock = func() int64 { return int64(b.now) }
	return b
}

// datagram evaluates a datagram of a flow from a source, or one back.
func (b *sourceBench) datagram(from string, port int, back bool) firewall.Verdict {
	b.t.Helper()
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr("10.0.0.1")
	if src.Is6() {
		dst = netip.MustParseAddr("2001:db8:9::1")
	}
	u := build.UDP{SrcPort: uint16(port), DstPort: 53}
	if back {
		src, dst, u.SrcPort, u.DstPort = dst, src, u.DstPort, u.SrcPort
	}
	var ip build.Layer = build.IPv4{Src: src, Dst: dst}
	if src.Is6() {
		ip = build.IPv6{Src: src, Dst: dst}
	}
	p := enginetest.Packet(b.t, ip, u, build.Data(make([]byte, 20)))
	v, err := b.e.Evaluate(&firewall.Input{Now: b.now}, p)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// flood begins 300 flows, all of which have to pass.
func (b *sourceBench) flood(from string) {
	b.t.Helper()
	for port := range 300 {
		if v := b.datagram(from, 1000+port, false); !v.Pass {
			b.t.Fatalf("%s port %d: %+v", from, 1000+port, v)
		}
	}
}

// halfOpen wants n half-open states of a source, or up to slack fewer. They are those of its last
// packets: older ones were evicted.
func (b *sourceBench) halfOpen(what, source string, n, slack int) {
	b.t.Helper()
	have := 0
	for s, err := range b.e.States() {
		if err != nil {
			b.t.Fatal(err)
		}
		if netip.MustParsePrefix(source).Contains(s.From.Addr()) && s.Phase.HalfOpen() {
			have++
		}
	}
	if have > n || have < n-slack {
		b.t.Errorf("%s: %s has %d half-open states, not %d", what, source, have, n)
	}
}

// evicted returns how many states were evicted for others of their source.
func (b *sourceBench) evicted() uint64 {
	b.t.Helper()
	s, err := b.e.Stats()
	if err != nil {
		b.t.Fatal(err)
	}
	return s.Removed["source"]
}

// TestHalfOpenStatesOfOneSource floods from one source: it gets as many half-open states as it may,
// of which the older ones are evicted, and leaves the others theirs. Each end of a half-open state
// lets its source have another one.
func TestHalfOpenStatesOfOneSource(t *testing.T) {
	b := newSourceBench(t)
	const first, second = "10.1.0.1/32", "10.1.0.2/32"
	b.flood("10.1.0.1")
	b.flood("10.1.0.2")
	b.flood("2001:db8::1")
	b.halfOpen("flood", first, 100, 0)
	b.halfOpen("flood", second, 100, 0)
	// One host has a whole /64.
	b.datagram("2001:db8::ffff:1", 9, false)
	b.halfOpen("flood", "2001:db8::/64", 100, 0)
	b.datagram("2001:db8:0:1::1", 9, false)
	b.halfOpen("another /64", "2001:db8:0:1::/64", 1, 0)
	// Also the one whose first half is zero, which is not an IPv4 address.
	for n := range 110 {
		b.datagram(fmt.Sprintf("::%x:0:1", 1+n), 9, false)
	}
	b.halfOpen("no IPv4 address", "::/64", 100, 0)
	if n := b.e.sourcesInUse(t); n != 2*401 {
		t.Errorf("the counters of sources add up to %d for 401 half-open states", n)
	}
	// A proved state does not count, and is not evicted.
	for port := range 40 {
		b.datagram("10.1.0.1", 1260+port, true)
		b.datagram("10.1.0.1", 1260+port, false)
	}
	b.halfOpen("after 40 proofs", first, 60, 0)
	b.flood("10.1.0.1")
	// Where 40 in a row have left, a few are not found.
	b.halfOpen("and another flood", first, 110, 10)
	established := 0
	for s := range b.e.States() {
		if s.Phase == flow.PhaseEstablished {
			established++
		}
	}
	if established != 40 {
		t.Errorf("%d of 40 established states are left", established)
	}
	// Nor does what is cut, or has expired.
	cut, err := b.e.DeleteStates(func(s firewall.State) bool {
		return s.From.Addr() == netip.MustParseAddr("10.1.0.2")
	})
	// some may have made way where the first source found none of its own
	if cut < 95 || cut > 100 || err != nil {
		t.Fatalf("cut %d: %v", cut, err)
	}
	before := b.evicted()
	for port := range 100 {
		b.datagram("10.1.0.2", 5000+port, false)
	}
	b.halfOpen("after a cut", second, 100, 0)
	if n := b.evicted() - before; n != 0 {
		t.Errorf("below the limit again %d states were evicted", n)
	}
	b.now += time.Minute
	if err := sweepAt(b.e, b.now); err != nil {
		t.Fatal(err)
	}
	if n := b.e.sourcesInUse(t); n != 0 {
		t.Errorf("all states have expired; the counters of sources add up to %d", n)
	}
}

// trackCount returns how many states a track counts.
func trackCount(held uint64) int { return int(held & (1<<27 - 1)) }

// TestSourcesAreLookedAt: from half the limit of a source on, rounded down, its states are looked
// at, since an address of the host itself may have no more.
func TestSourcesAreLookedAt(t *testing.T) {
	for most := 1; most < 100; most++ {
		var c weirConfig
		c.limitSources(most)
		if int(c.SourceFrom) > most/2 || c.SourceTurns == 0 {
			t.Errorf("of %d: from %d on, %d are recorded", most, c.SourceFrom, c.SourceTurns)
		}
		if most > sourceFew && int(c.SourceFrom) != most/2 {
			t.Errorf("of %d: already from %d on", most, c.SourceFrom)
		}
	}
}
