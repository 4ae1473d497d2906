package kernel

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
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

// TestHalfOpenStatesOfOneSource floods from one source: it gets as many half-open states as it may,
// of which the older ones are evicted, and leaves the others theirs. Each end of a half-open state
// lets its source have another one.
func TestHalfOpenStatesOfOneSource(t *testing.T) {
	nstest.Root(t)
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 20000, 5000, 100
	e, err := openShared(t, Config{Options: o})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer e.Close()
	if err := e.Load(compile(t,
		"add check-state\nadd allow udp from any to any keep-state\n")); err != nil {
		t.Fatal(err)
	}
	now := time.Second
	evaluate := func(from string, port int, back bool) firewall.Verdict {
		t.Helper()
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
		b, err := build.Packet(ip, u, build.Data(make([]byte, 20)))
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Evaluate(&firewall.Input{Now: now}, b)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	flood := func(from string) {
		t.Helper()
		for port := range 300 {
			if v := evaluate(from, 1000+port, false); !v.Pass {
				t.Fatalf("%s port %d: %+v", from, 1000+port, v)
			}
		}
	}
	// A source has the states of its last packets: older ones were evicted.
	want := func(what string, source netip.Prefix, n, slack int) {
		t.Helper()
		have := 0
		for s, err := range e.States() {
			if err != nil {
				t.Fatal(err)
			}
			if source.Contains(s.From.Addr()) && s.Phase.HalfOpen() {
				have++
			}
		}
		if have > n || have < n-slack {
			t.Errorf("%s: %s has %d half-open states, not %d", what, source, have, n)
		}
	}
	e.clock = func() int64 { return int64(now) }
	first, second, six := netip.MustParsePrefix("10.1.0.1/32"),
		netip.MustParsePrefix("10.1.0.2/32"), netip.MustParsePrefix("2001:db8::/64")
	flood("10.1.0.1")
	flood("10.1.0.2")
	flood("2001:db8::1")
	want("flood", first, 100, 0)
	want("flood", second, 100, 0)
	// One host has a whole /64.
	evaluate("2001:db8::ffff:1", 9, false)
	want("flood", six, 100, 0)
	evaluate("2001:db8:0:1::1", 9, false)
	want("another /64", netip.MustParsePrefix("2001:db8:0:1::/64"), 1, 0)
	// Also the one whose first half is zero, which is not an IPv4 address.
	for n := range 110 {
		evaluate(fmt.Sprintf("::%x:0:1", 1+n), 9, false)
	}
	want("no IPv4 address", netip.MustParsePrefix("::/64"), 100, 0)
	if n := e.sourcesInUse(t); n != 2*401 {
		t.Errorf("the counters of sources add up to %d for 401 half-open states", n)
	}
	// A proved state does not count, and is not evicted.
	for port := range 40 {
		evaluate("10.1.0.1", 1260+port, true)
		evaluate("10.1.0.1", 1260+port, false)
	}
	want("after 40 proofs", first, 60, 0)
	flood("10.1.0.1")
	want("and another flood", first, 110, 10) // where 40 in a row have left, a few are not found
	established := 0
	for s := range e.States() {
		if s.Phase == flow.PhaseEstablished {
			established++
		}
	}
	if established != 40 {
		t.Errorf("%d of 40 established states are left", established)
	}
	// Nor does what is cut, or has expired.
	cut, err := e.DeleteStates(func(s firewall.State) bool {
		return s.From.Addr() == second.Addr()
	})
	// some may have made way where the first source found none of its own
	if cut < 95 || cut > 100 || err != nil {
		t.Fatalf("cut %d: %v", cut, err)
	}
	before, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for port := range 100 {
		evaluate("10.1.0.2", 5000+port, false)
	}
	want("after a cut", second, 100, 0)
	after, err := e.Stats()
	if err != nil || after.Removed["source"] != before.Removed["source"] {
		t.Errorf("below the limit again %d states were evicted: %v",
			after.Removed["source"]-before.Removed["source"], err)
	}
	now += time.Minute
	if err := e.call.ask(&weirCall{Op: opSweep, Now: int64(now),
		Count: e.config.Sets}); err != nil {
		t.Fatal(err)
	}
	if n := e.sourcesInUse(t); n != 0 {
		t.Errorf("all states have expired; the counters of sources add up to %d", n)
	}
}

// trackCount returns how many states a track counts.
func trackCount(held uint64) int { return int(held & (1<<27 - 1)) }
