package kernel

import (
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
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

// sweepAt visits all sets once, as the sweep does in many ticks.
func sweepAt(e *Engine, now time.Duration) error {
	return e.call.ask(&weirCall{Op: opSweep, Now: int64(now), Count: e.config.Sets})
}

// hintBench is an engine whose clock the test sets, and which it sweeps by hand.
type hintBench struct {
	*asker
	now time.Duration
}

func newHintBench(t *testing.T) *hintBench {
	t.Helper()
	e := newEngine(t)
	b := &hintBench{now: time.Second, asker: newAsker(t, e,
		"add 50 check-state\nadd 100 allow ip from any to any keep-state\n")}
	e.clock = func() int64 { return int64(b.now) }
	return b
}

func (b *hintBench) sweep(times int) {
	b.t.Helper()
	for range times {
		b.must(sweepAt(b.e, b.now))
	}
}

// hinted wants so many sets left alone by the sweep.
func (b *hintBench) hinted(want int, when string) {
	b.t.Helper()
	if n := b.e.hintedSets(b.t, b.now); n != want {
		b.t.Errorf("%s: %d of %d sets are left alone, want %d", when, n, b.e.config.Sets, want)
	}
}

// states wants so many states, expired ones included: States leaves those out, the gauge does not.
func (b *hintBench) states(want int, when string) {
	b.t.Helper()
	n := 0
	for _, err := range b.e.States() {
		b.must(err)
		n++
	}
	if s, err := b.e.Stats(); err != nil || n != want || int(s.States) != want {
		b.t.Fatalf("%s: %d states, %d in the table, want %d: %v", when, n, s.States, want, err)
	}
}

// segment evaluates a segment of one connection, which has to pass.
func (b *hintBench) segment(back bool, flags uint8, seq, ack uint32) {
	b.t.Helper()
	ip, tcp := b.ip, build.TCP{SrcPort: 4000, DstPort: 80, Flags: flags, Seq: seq, Ack: ack,
		Window: 60000}
	if back {
		ip.Src, ip.Dst, tcp.SrcPort, tcp.DstPort = ip.Dst, ip.Src, tcp.DstPort, tcp.SrcPort
	}
	p := enginetest.Packet(b.t, ip, tcp)
	v, err := b.e.Evaluate(&firewall.Input{Now: b.now, Hook: b.Hook}, p)
	b.must(err)
	if !v.Pass {
		b.t.Fatalf("a segment is dropped: %+v", v)
	}
}

// datagrams begins n flows.
func (b *hintBench) datagrams(n int) {
	b.t.Helper()
	for i := range n {
		b.udp.SrcPort = uint16(6000 + i)
		p := enginetest.Packet(b.t, b.ip, b.udp, build.Data("x"))
		_, err := b.e.Evaluate(&firewall.Input{Now: b.now, Hook: b.Hook}, p)
		b.must(err)
	}
}

// TestSweepHints: the sweep skips sets whose states stay, and yet no state outlives its lifetime.
// That holds for one that expires, one that ends, and one that is added to a skipped set.
func TestSweepHints(t *testing.T) {
	b := newHintBench(t)
	const fin, syn, ack, rst = packet.FlagFIN, packet.FlagSYN, packet.FlagACK, packet.FlagRST
	b.segment(false, syn, 1000, 0)
	b.segment(true, syn|ack, 5000, 1001)
	b.segment(false, ack, 1001, 5001)
	b.hinted(0, "before the first pass")
	b.sweep(2) // one pass to see that nothing changes, one to note it
	all := int(b.e.config.Sets)
	b.hinted(all, "after two passes")
	// A state that is added to a set with a hint expires in time.
	b.datagrams(40)
	b.states(41, "after 40 datagrams")
	b.sweep(3)
	b.now += 2 * time.Minute
	b.sweep(1)
	b.states(1, "after they have expired")
	b.sweep(2)
	b.hinted(all, "after two more passes")
	// A connection that ends keeps its set visited, also where the last segment comes long after
	// the others.
	b.segment(false, fin|ack, 1001, 5001)
	b.sweep(2)
	b.hinted(all, "after the first FIN")
	b.segment(true, fin|ack, 5001, 1002)
	b.sweep(2)
	b.hinted(all-1, "while one connection closes")
	b.segment(false, ack, 1002, 5002)
	b.sweep(2)
	b.hinted(all-1, "after one connection has ended")
	b.now += 3 * time.Second
	b.sweep(1)
	b.states(0, "after the connection has ended")
	// A reset ends an established connection, and one that is half-open.
	for _, established := range []bool{false, true} {
		b.segment(false, syn, 1000, 0)
		b.segment(true, syn|ack, 5000, 1001)
		if established {
			b.segment(false, ack, 1001, 5001)
		}
		b.sweep(3)
		b.hinted(all, "before a reset")
		b.segment(true, rst, 5001, 0)
		b.now += 3 * time.Second
		b.sweep(1)
		b.states(0, "after a reset")
	}
	// The same connection again, in the same place, by a reset alone: what the sweep knew of the
	// established one does not count.
	b.now += time.Second // an entry is not used again at once
	b.segment(true, rst, 5001, 0)
	b.states(1, "after a reset alone")
	b.now += 3 * time.Second
	b.sweep(1)
	b.states(0, "when a reset alone has expired")
}

// TestProbesAfterALateWatch: a set that the sweep left alone before there was a Watch is visited in
// time for the probes of an idle connection.
func TestProbesAfterALateWatch(t *testing.T) {
	b := newHintBench(t)
	const syn, ack = packet.FlagSYN, packet.FlagACK
	b.segment(false, syn, 1000, 0)
	b.segment(true, syn|ack, 5000, 1001)
	b.segment(false, ack, 1001, 5001)
	last := b.now
	b.sweep(2)
	b.hinted(int(b.e.config.Sets), "before the Watch")
	b.must(b.e.watching(true))
	b.sweep(3)
	for left := 15*time.Second - time.Millisecond; left > 0; left -= 5 * time.Second {
		b.now = last + time.Duration(b.e.config.LifeEstablished) - left
		b.sweep(1)
	}
	if n := readRing(t, b.e)[eventProbe]; n != 3 {
		t.Errorf("%d probes were asked for, not 3", n)
	}
}

// TestPurgeInShortRuns: a Load that removes a rule removes all its states, in runs of the program
// that visit few of them: packets wait for a run.
func TestPurgeInShortRuns(t *testing.T) {
	b := newHintBench(t)
	const many = 300
	b.datagrams(many)
	b.states(many, "before")
	b.must(b.e.Load(compile(t, "add 300 deny ip from any to any\n")))
	calls := make([]weirCall, 1) // as the last one has left it
	_, err := b.e.call.memory.ReadAt(bytesOf(calls), 0)
	b.must(err)
	if c := &calls[0]; c.Op != opPurge || c.Count > adoptBatch || c.Place == 0 {
		t.Errorf("call %d visits %d sets from %d on", c.Op, c.Count, c.Place)
	}
	b.states(0, "without the rule")
}
