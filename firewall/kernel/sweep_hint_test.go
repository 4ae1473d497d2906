package kernel

import (
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// hintedSets counts the sets that the sweep skips at a time.
func (e *Engine) hintedSets(t *testing.T, now time.Duration) (n int) {
	t.Helper()
	for set := range e.config.Sets {
		var hint uint64
		if err := e.objects.SweepHints.Lookup(set, &hint); err != nil {
			t.Fatal(err)
		}
		if hint>>32 > uint64(now)>>30 {
			n++
		}
	}
	return n
}

// TestSweepHints: the sweep skips sets whose states stay, and yet no state outlives its lifetime:
// neither one that expires, nor one that ends, nor one that is added to a skipped set.
func TestSweepHints(t *testing.T) {
	e := newEngine(t)
	now := time.Second
	e.clock = func() int64 { return int64(now) }
	a := newAsker(t, e, "add 50 check-state\nadd 100 allow ip from any to any keep-state\n")
	sweep := func(times int) {
		t.Helper()
		for range times {
			a.must(e.call.ask(&weirCall{Op: opSweep, Now: int64(now), Count: e.config.Sets}))
		}
	}
	states := func(want int, what string) {
		t.Helper()
		n := 0
		for _, err := range e.States() {
			a.must(err)
			n++
		}
		// States leaves out what has expired: the gauge does not.
		if s, err := e.Stats(); err != nil || n != want || int(s.States) != want {
			t.Fatalf("%s: %d states, %d in the table, want %d: %v", what, n, s.States, want, err)
		}
	}
	sendWord := func(back bool, flags uint8, seq, ack uint32) {
		t.Helper()
		ip, tcp := a.ip, build.TCP{SrcPort: 4000, DstPort: 80, Flags: flags, Seq: seq, Ack: ack,
			Window: 60000}
		if back {
			ip.Src, ip.Dst, tcp.SrcPort, tcp.DstPort = ip.Dst, ip.Src, tcp.DstPort, tcp.SrcPort
		}
		b, err := build.Packet(ip, tcp)
		a.must(err)
		v, err := e.Evaluate(&firewall.Input{Now: now, Hook: a.Hook}, b)
		a.must(err)
		if !v.Pass {
			t.Fatalf("a segment is dropped: %+v", v)
		}
	}
	const fin, syn, ack = packet.FlagFIN, packet.FlagSYN, packet.FlagACK

	sendWord(false, syn, 1000, 0)
	sendWord(true, syn|ack, 5000, 1001)
	sendWord(false, ack, 1001, 5001)
	if n := e.hintedSets(t, now); n != 0 {
		t.Errorf("%d sets are left alone before the first pass", n)
	}
	sweep(2) // one pass to see that nothing changes, one to note it
	if n := e.hintedSets(t, now); n != int(e.config.Sets) {
		t.Errorf("%d of %d sets are left alone", n, e.config.Sets)
	}
	// A state that is added to a set with a hint expires in time.
	for n := range 40 {
		a.udp.SrcPort = uint16(6000 + n)
		b, err := build.Packet(a.ip, a.udp, build.Data("x"))
		a.must(err)
		_, err = e.Evaluate(&firewall.Input{Now: now, Hook: a.Hook}, b)
		a.must(err)
	}
	states(41, "after 40 datagrams")
	sweep(3)
	now += 2 * time.Minute
	sweep(1)
	states(1, "after they have expired")
	sweep(2)
	if n := e.hintedSets(t, now); n != int(e.config.Sets) {
		t.Errorf("%d of %d sets are left alone again", n, e.config.Sets)
	}
	// A connection that ends keeps its set visited, also where the last segment comes long after
	// the others.
	sendWord(false, fin|ack, 1001, 5001)
	sweep(2)
	if n := e.hintedSets(t, now); n != int(e.config.Sets) {
		t.Errorf("%d of %d sets are left alone after the first FIN", n, e.config.Sets)
	}
	sendWord(true, fin|ack, 5001, 1002)
	sweep(2)
	if n := e.hintedSets(t, now); n != int(e.config.Sets)-1 {
		t.Errorf("%d of %d sets are left alone while one connection closes", n, e.config.Sets)
	}
	sendWord(false, ack, 1002, 5002)
	sweep(2)
	if n := e.hintedSets(t, now); n != int(e.config.Sets)-1 {
		t.Errorf("%d of %d sets are left alone after one connection has ended", n, e.config.Sets)
	}
	now += 3 * time.Second
	sweep(1)
	states(0, "after the connection has ended")
	// A reset ends an established connection, and one that is half-open.
	for _, established := range []bool{true, false} {
		sendWord(false, syn, 1000, 0)
		sendWord(true, syn|ack, 5000, 1001)
		if established {
			sendWord(false, ack, 1001, 5001)
		}
		sweep(3)
		if n := e.hintedSets(t, now); n != int(e.config.Sets) {
			t.Errorf("%d of %d sets are left alone before a reset", n, e.config.Sets)
		}
		sendWord(true, packet.FlagRST, 5001, 0)
		now += 3 * time.Second
		sweep(1)
		states(0, "after a reset")
	}
}
