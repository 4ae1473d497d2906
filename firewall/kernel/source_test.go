package kernel

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// sourcesInUse adds up the cells of the counters of sources: two for each half-open state.
func (e *Engine) sourcesInUse(t *testing.T) (sum int) {
	t.Helper()
	m, err := e.objects.Sources.Memory()
	if err != nil {
		t.Fatal(err)
	}
	cells := make([]uint32, m.Size()/8) // an element of an array takes eight bytes
	b := make([]byte, m.Size())
	if _, err := m.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	for i := range cells {
		sum += int(*(*int32)(unsafe.Pointer(&b[8*i])))
	}
	return sum
}

// TestHalfOpenStatesOfOneSource floods from one source: it gets as many half-open states as it may, is refused with its own reason,
// and leaves the others theirs. Whatever ends a half-open state gives its source room again.
func TestHalfOpenStatesOfOneSource(t *testing.T) {
	nstest.Root(t)
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxEmbryonic, o.MaxPerSource = 20000, 5000, 100
	e, err := Open(Config{Options: o})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer e.Close()
	if err := e.Load(compile(t, "add check-state\nadd allow udp from any to any keep-state\n")); err != nil {
		t.Fatal(err)
	}
	now := time.Second
	judge := func(from string, port int, back bool) firewall.Verdict {
		t.Helper()
		src, dst := netip.MustParseAddr(from), netip.MustParseAddr("10.0.0.1")
		if src.Is6() {
			dst = netip.MustParseAddr("2001:db8:9::1")
		}
		u := packet.UDP{SrcPort: uint16(port), DstPort: 53}
		if back {
			src, dst, u.SrcPort, u.DstPort = dst, src, u.DstPort, u.SrcPort
		}
		var ip packet.Layer = packet.IPv4{Src: src, Dst: dst}
		if src.Is6() {
			ip = packet.IPv6{Src: src, Dst: dst}
		}
		b, err := packet.Build(ip, u, packet.Data(make([]byte, 20)))
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Judge(&firewall.Input{Now: now}, b)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	flood := func(from string) (passed int) {
		for port := range 300 {
			switch v := judge(from, 1000+port, false); {
			case v.Pass:
				passed++
			case v.Reason != firewall.ReasonEmbryonicSource:
				t.Fatalf("%s port %d: %+v", from, 1000+port, v)
			}
		}
		return passed
	}
	for _, from := range []string{"10.1.0.1", "10.1.0.2", "2001:db8::1"} {
		if n := flood(from); n != 100 {
			t.Errorf("%s has %d half-open states, 100 are allowed", from, n)
		}
	}
	// One host has a whole /64.
	if v := judge("2001:db8::ffff:1", 9, false); v.Reason != firewall.ReasonEmbryonicSource {
		t.Errorf("another address of the same /64: %+v", v)
	}
	if v := judge("2001:db8:0:1::1", 9, false); !v.Pass {
		t.Errorf("another /64: %+v", v)
	}
	// Also the one whose first half is zero, which is no IPv4 address.
	passed := 0
	for n := range 110 {
		if judge(fmt.Sprintf("::%x:0:1", 1+n), 9, false).Pass {
			passed++
		}
	}
	if passed != 100 {
		t.Errorf("::/64 has %d half-open states, 100 are allowed", passed)
	}
	if n := e.sourcesInUse(t); n != 2*401 {
		t.Errorf("the counters of sources add up to %d for 401 half-open states", n)
	}
	// What is answered counts no longer: as many as were answered may come.
	for port := range 40 {
		judge("10.1.0.1", 1000+port, true)
	}
	if n := flood("10.1.0.1"); n != 100+40 { // 100 that are there, 40 new ones
		t.Errorf("after 40 answers %d packets pass, not 140", n)
	}
	// Nor does what is cut, or has expired.
	cut, err := e.Cut(func(s firewall.State) bool { return s.From.Addr() == netip.MustParseAddr("10.1.0.2") })
	if cut != 100 || err != nil {
		t.Fatalf("cut %d: %v", cut, err)
	}
	if n := flood("10.1.0.2"); n != 100 {
		t.Errorf("after a cut %d packets pass, not 100", n)
	}
	now += time.Minute
	if err := e.call.ask(&weirCall{Op: opSweep, Now: int64(now), Count: e.config.Sets}); err != nil {
		t.Fatal(err)
	}
	if n := e.sourcesInUse(t); n != 0 {
		t.Errorf("all states have expired; the counters of sources add up to %d", n)
	}
	decided, err := e.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	if refused := firewall.ByReason(decided)[firewall.ReasonEmbryonicSource]; refused != 200*3+1+10+160+200 {
		t.Errorf("%d packets counted as refused, not %d", refused, 200*3+1+10+160+200)
	}
}
