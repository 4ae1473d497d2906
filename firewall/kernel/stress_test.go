package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet/build"
)

// udpFrame returns a frame of flow n, there or back. The client's address follows from its port, so
// that an entry made of two flows shows.
func udpFrame(t testing.TB, n int, back bool, options ...byte) []byte {
	from, to := netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}),
		netip.MustParseAddr("10.0.0.1")
	u := build.UDP{SrcPort: uint16(1000 + n), DstPort: 53}
	if back {
		from, to = to, from
		u.SrcPort, u.DstPort = u.DstPort, u.SrcPort
	}
	b := enginetest.Packet(t, build.IPv4{Src: from, Dst: to, Options: options}, u,
		build.Data(make([]byte, 20)))
	return append(frameFor(b), b...)
}

// tally is what the state table holds, counted entry by entry.
type tally struct {
	live, halfOpen, tracked int
	packets                 uint64
}

// count walks the table and fails the test for doubled and torn entries.
func (e *Engine) count(t *testing.T) (n tally) {
	t.Helper()
	seen := map[string]bool{}
	for x, err := range e.entries() {
		if err != nil {
			t.Fatal(err)
		}
		n.live++
		if x.sides[0].Flags&metaHalfOpen != 0 {
			n.halfOpen++
		}
		if x.sides[0].Flags&metaTracked != 0 {
			n.tracked++
		}
		n.packets += x.sides[0].Packets + x.sides[1].Packets
		low, high := addrOf(x.addr[0], x.addr[1]), addrOf(x.addr[2], x.addr[3])
		ports := [2]uint16{uint16(x.tag >> 48), uint16(x.tag >> 32)}
		key := fmt.Sprint(low, high, ports)
		if seen[key] {
			t.Errorf("two entries of %s", key)
		}
		seen[key] = true
		flow := int(ports[1]) - 1000
		if low.String() != "10.0.0.1" || ports[0] != 53 ||
			high != netip.AddrFrom4([4]byte{10, 1, byte(flow >> 8), byte(flow)}) {
			t.Errorf("torn entry: %s", key)
		}
		if x.sides[0].Rule != x.sides[1].Rule {
			t.Errorf("%s: rules %#x and %#x", key, x.sides[0].Rule, x.sides[1].Rule)
		}
	}
	return n
}

// agree compares the counts in the kernel with what is there.
func (e *Engine) agree(t *testing.T) tally {
	t.Helper()
	n := e.count(t)
	s, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.States != n.live || s.HalfOpen != n.halfOpen {
		t.Errorf("the kernel counts %d states, %d half-open; the table holds %d and %d", s.States,
			s.HalfOpen, n.live, n.halfOpen)
	}
	var sets weirTrackSet
	counted := 0
	for i := range e.config.TrackSets {
		if err := e.objects.Tracks.Lookup(i, &sets); err != nil {
			t.Fatal(err)
		}
		for w := range sets.Track {
			if sets.Tag[w]&tagMask == tagLive {
				counted += trackCount(sets.Track[w].Held)
			}
		}
	}
	if counted != n.tracked {
		t.Errorf("the tracks count %d states, the table holds %d", counted, n.tracked)
	}
	return n
}

// TestTwoCPUs has both CPUs work on the same flows at once: insert them, answer them, expire them
// and cut them. Rules that keep states make them on the fast path, those with a limit on the slow
// path; so do all for packets with IP options.
func TestTwoCPUs(t *testing.T) { everyPathOnTwoCPUs(t, 2000, time.Second/2) }

// TestLongTwoCPUs has more flows, for longer.
func TestLongTwoCPUs(t *testing.T) { everyPathOnTwoCPUs(t, 8000, 3*time.Second) }

func everyPathOnTwoCPUs(t *testing.T, flows int, atOnce time.Duration) {
	t.Helper()
	nstest.RequireRoot(t)
	nop := []byte{1, 1, 1, 1}
	for name, c := range map[string]struct {
		rule    string
		options [2][]byte // of what each CPU inserts
	}{
		"the slow path":                     {"limit dst-addr 100000", [2][]byte{}},
		"the fast path":                     {"keep-state", [2][]byte{}},
		"one the short, the other the long": {"keep-state", [2][]byte{nil, nop}},
	} {
		t.Run(name, func(t *testing.T) { twoCPUs(t, c.rule, c.options, flows, atOnce) })
	}
}

// onBothCPUs runs f twice at once.
func onBothCPUs(f func(cpu int)) {
	var wg sync.WaitGroup
	for cpu := range 2 {
		wg.Go(func() { f(cpu) })
	}
	wg.Wait()
}

// deleteAndSweep cuts one state in so many, and sweeps, again and again until the time is over. It
// returns how many it cut. On a busy machine it may not run before the time is over, or once before
// there are states: it continues until it has cut one.
func deleteAndSweep(t *testing.T, e *Engine, oneIn int, stop time.Time) (cut int) {
	random := rand.New(rand.NewPCG(testrand.Seed(t), 2))
	for time.Now().Before(stop) || cut == 0 && time.Since(stop) < testTimeout {
		n, err := e.DeleteStates(func(firewall.State) bool { return random.IntN(oneIn) == 0 })
		if err != nil {
			t.Error(err)
		}
		cut += n
		if err := sweepAt(e, time.Duration(e.now())); err != nil {
			t.Error(err)
		}
	}
	return cut
}

func twoCPUs(t *testing.T, rule string, options [2][]byte, flows int, atOnce time.Duration) {
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen = 20000, 20000
	e := newEngineWith(t, o)
	if err := e.Load(compile(t, "add check-state\nadd allow udp from any to any "+rule+
		"\n")); err != nil {
		t.Fatal(err)
	}
	frames, first := [2][][]byte{}, [2][][]byte{}
	for n := range flows {
		for way := range frames {
			frames[way] = append(frames[way], udpFrame(t, n, way == 1))
			first[way] = append(first[way], udpFrame(t, n, false, options[way]...))
		}
	}
	run := func(frame []byte) {
		if _, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame}); err != nil {
			t.Error(err)
		}
	}
	// Both insert the same flows, in the same order, at the same time.
	onBothCPUs(func(cpu int) {
		for n := range flows {
			run(first[cpu][n])
		}
	})
	if n := e.agree(t); n.live != flows || n.halfOpen != flows || n.packets < uint64(flows) {
		t.Errorf("inserted %d flows twice: %+v", flows, n)
	}
	s, _ := e.Stats()
	t.Logf("inserted at once by both: %d", s.Removed["duplicate"])
	// One carries one direction, the other the other.
	was := e.count(t).packets
	onBothCPUs(func(cpu int) {
		for n := range flows {
			run(frames[cpu][n])
		}
	})
	// Who began sends again, on both: now the flows have proved themselves.
	onBothCPUs(func(cpu int) {
		for n := cpu; n < flows; n += 2 {
			run(frames[0][n])
		}
	})
	if n := e.agree(t); n.live != flows || n.halfOpen != 0 || n.packets != was+3*uint64(flows) {
		t.Errorf("answered %d flows: %+v, %d packets before", flows, n, was)
	}
	everythingAtOnce(t, e, frames, run, atOnce)
}

// everythingAtOnce has both CPUs send packets of all flows at random, while states are cut and
// swept.
func everythingAtOnce(t *testing.T, e *Engine, frames [2][][]byte, run func(frame []byte),
	most time.Duration) {
	t.Helper()
	stop := time.Now().Add(most)
	cut := 0
	var packets atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { cut = deleteAndSweep(t, e, 3, stop) })
	seed := testrand.Seed(t)
	onBothCPUs(func(cpu int) {
		random := rand.New(rand.NewPCG(seed, uint64(cpu)))
		for time.Now().Before(stop) {
			run(frames[random.IntN(2)][random.IntN(len(frames[0]))])
			packets.Add(1)
		}
	})
	wg.Wait()
	e.agree(t)
	t.Logf("%d packets, %d states cut", packets.Load(), cut)
	if cut == 0 {
		t.Error("nothing was cut")
	}
	if _, err := e.DeleteStates(func(firewall.State) bool { return true }); err != nil {
		t.Error(err)
	}
	if n := e.agree(t); n.live != 0 {
		t.Errorf("after cutting everything: %+v", n)
	}
}

// TestFloodOfNewFlows fills the half-open part: newcomers push each other out, and what is
// established stays.
func TestFloodOfNewFlows(t *testing.T) {
	nstest.RequireRoot(t)
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen = 20000, 5000
	e := newPartEngine(t, o)
	if err := e.Load(compile(t,
		"add check-state\nadd allow udp from any to any keep-state\n")); err != nil {
		t.Fatal(err)
	}
	run := func(frame []byte) uint32 {
		code, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame})
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	const established = 3000
	for n := range established {
		run(udpFrame(t, n, false))
		run(udpFrame(t, n, true))
		run(udpFrame(t, n, false)) // the originator sends again: proved
	}
	passed := 0
	for n := established; n < 40000; n++ {
		for range 1 + n%3 { // up to three packets of a tuple
			if int32(run(udpFrame(t, n, false))) == -1 {
				passed++
			}
		}
	}
	n := e.agree(t)
	if n.live-n.halfOpen != established {
		t.Errorf("of %d established flows %d are left", established, n.live-n.halfOpen)
	}
	// a newcomer without a victim is let in, up to an eighth
	if n.halfOpen > 5000*9/8 || n.halfOpen < 4900 {
		t.Errorf("%d half-open states, 5000 are allowed", n.halfOpen)
	}
	s, _ := e.Stats()
	decisions, _ := e.Decisions()
	drops := firewall.ByReason(decisions)
	t.Logf("%d packets passed, %d reclaimed, refused %d", passed, s.Removed["reclaimed"],
		drops[firewall.ReasonHalfOpenFull])
	if s.Removed["reclaimed"] < 25000 {
		t.Errorf("reclaimed only %d", s.Removed["reclaimed"])
	}
	for i := range established {
		if code := run(udpFrame(t, i, false)); int32(code) != -1 {
			t.Fatalf("established flow %d: %d", i, int32(code))
		}
	}
}

// TestTableFillsUp inserts until the table refuses: not before 90 %, and never above the maximum
// by more than 5 %.
func TestTableFillsUp(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen = 20000, 30000
	e := newEngineWith(t, o)
	if err := e.Load(compile(t,
		"add check-state\nadd allow udp from any to any 53 keep-state\n"+
			"add allow udp from any to any 54\n")); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := range 30000 {
		for _, back := range []bool{false, true, false} { // proved
			if _, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: udpFrame(t, n,
				back)}); err != nil {
				t.Fatal(err)
			}
		}
		if all, _ := e.Decisions(); n%100 == 0 && refused == 0 &&
			firewall.ByReason(all)[firewall.ReasonStatesFull] > 0 {
			refused = n
		}
	}
	n := e.agree(t)
	t.Logf("first refused after about %d of %d, %d live in the end", refused, o.MaxStates, n.live)
	if refused < o.MaxStates*9/10 {
		t.Errorf("refused after %d of %d states", refused, o.MaxStates)
	}
	if n.live > o.MaxStates*105/100 || n.live < o.MaxStates*95/100 {
		t.Errorf("%d states, %d are allowed", n.live, o.MaxStates)
	}
}

// TestTwoCPUsInAFullTable has both CPUs open, answer and close connections in a table that is
// always about full. So entries are moved, evicted and reclaimed while packets use them, and others
// are cut and swept. Nothing may be counted twice, lost or torn.
func TestTwoCPUsInAFullTable(t *testing.T) { fullTableOnTwoCPUs(t, time.Second) }

// TestLongTwoCPUsInAFullTable does it for longer.
func TestLongTwoCPUsInAFullTable(t *testing.T) { fullTableOnTwoCPUs(t, 4*time.Second) }

func fullTableOnTwoCPUs(t *testing.T, most time.Duration) {
	t.Helper()
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 2000, 700, 0
	e := newEngineWith(t, o)
	if err := e.Load(compile(t,
		"add check-state\nadd allow udp from any to any limit src-addr 1\n")); err != nil {
		t.Fatal(err)
	}
	const flows = 4000
	frames := [2][flows][]byte{}
	for n := range flows {
		frames[0][n], frames[1][n] = udpFrame(t, n, false), udpFrame(t, n, true)
	}
	stop := time.Now().Add(most)
	cut := 0
	var packets atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { cut = deleteAndSweep(t, e, 20, stop) })
	seed := testrand.Seed(t)
	onBothCPUs(func(cpu int) {
		random := rand.New(rand.NewPCG(seed, uint64(cpu)))
		for time.Now().Before(stop) {
			for range 100 {
				way, n := 0, random.IntN(flows)
				if random.IntN(3) == 0 {
					way = 1
				}
				if _, err := e.objects.WeirIn.Run(
					&ebpf.RunOptions{Data: frames[way][n]}); err != nil {
					t.Error(err)
					return
				}
			}
			packets.Add(100)
		}
	})
	wg.Wait()
	t.Logf("%d packets, %d states cut", packets.Load(), cut)
	if cut == 0 {
		t.Error("nothing was cut")
	}
	checkFullTable(t, e, o.MaxStates)
	// Every flow has its one place again once the others are gone.
	if _, err := e.DeleteStates(func(firewall.State) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if n := e.agree(t); n.live != 0 || e.sourcesInUse(t) != 0 {
		t.Errorf("after cutting everything: %+v, sources %d", n, e.sourcesInUse(t))
	}
}

// checkFullTable wants every state of a table that was full, each with a track, counted once
// wherever states are counted.
func checkFullTable(t *testing.T, e *Engine, maxStates int) {
	t.Helper()
	n := e.agree(t)
	if sum := e.sourcesInUse(t); sum != 2*n.halfOpen {
		t.Errorf("the counters of sources add up to %d for %d half-open states", sum, n.halfOpen)
	}
	s, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	decided, err := e.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	reasons := firewall.ByReason(decided)
	t.Logf("%d states made, %v removed; refused: full %d, half-open %d, limit %d; left %+v",
		s.Created, s.Removed, reasons[firewall.ReasonStatesFull],
		reasons[firewall.ReasonHalfOpenFull], reasons[firewall.ReasonLimit], n)
	if s.Removed["reclaimed"] == 0 || n.tracked != n.live {
		t.Errorf("removed %v; %d of %d states are in tracks", s.Removed, n.tracked, n.live)
	}
	if got := uint64(n.live); s.Created-sum(s.Removed) != got {
		t.Errorf("made %d, removed %d, and there are %d", s.Created, sum(s.Removed), got)
	}
	if n.live > maxStates*105/100 {
		t.Errorf("%d states, %d are allowed", n.live, maxStates)
	}
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// TestLimitIsExact has both CPUs open more connections than a limit allows, at once, again and
// again: there are never more, and never fewer.
func TestLimitIsExact(t *testing.T) {
	nstest.RequireRoot(t)
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen = 20000, 20000
	e := newEngineWith(t, o)
	const limit, flows = 50, 400
	if err := e.Load(compile(t, fmt.Sprintf("add check-state\nadd allow udp from any to any limit "+
		"dst-addr %d\n", limit))); err != nil {
		t.Fatal(err)
	}
	frames := [flows][]byte{}
	for n := range flows {
		frames[n] = udpFrame(t, n, false)
	}
	random := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	for round := range 40 {
		onBothCPUs(func(cpu int) {
			for n := range flows / 2 {
				if _, err := e.objects.WeirIn.Run(
					&ebpf.RunOptions{Data: frames[2*n+cpu]}); err != nil {
					t.Error(err)
				}
			}
		})
		n := e.agree(t)
		if n.live != limit {
			t.Fatalf("round %d: %d states, the limit is %d", round, n.live, limit)
		}
		two := func(firewall.State) bool { return random.IntN(3) > 0 }
		if _, err := e.DeleteStates(two); err != nil {
			t.Fatal(err)
		}
	}
}
