package kernel

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// bench evaluates packets by an engine of its own, at times of its own.
type bench struct {
	t   *testing.T
	e   *Engine
	now time.Duration
}

// newBench opens an engine for the host 10.0.0.1.
func newBench(t *testing.T, rules string, change func(*firewall.Options)) *bench {
	t.Helper()
	nstest.RequireRoot(t)
	o := firewall.DefaultOptions()
	change(&o)
	e := newPartEngine(t, o)
	b := &bench{t: t, e: e, now: time.Second}
	e.clock = func() int64 { return int64(b.now) }
	me := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
	if err := e.SetInterfaces([]firewall.Interface{{Index: 1, Name: "eth0",
		Addrs: me}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Load(compile(t, rules)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) evaluate(dir firewall.Direction, from, to netip.Addr,
	layers ...build.Layer) firewall.Verdict {
	b.t.Helper()
	raw := enginetest.Packet(b.t,
		append([]build.Layer{build.IPv4{Src: from, Dst: to}}, layers...)...)
	hook := firewall.Hook{Dir: dir, Recv: 1}
	if dir == firewall.Out {
		hook = firewall.Hook{Dir: dir, Xmit: 1}
	}
	v, err := b.e.Evaluate(&firewall.Input{Now: b.now, Hook: hook}, raw)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

var benchHost = netip.MustParseAddr("10.0.0.1")

// outsider returns an address outside.
func outsider(n int) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 11<<24+uint32(n))
	return netip.AddrFrom4(a)
}

// ask sends a datagram to the host, answer one back.
func (b *bench) ask(from netip.Addr, port uint16) firewall.Verdict {
	b.t.Helper()
	return b.evaluate(firewall.In, from, benchHost, build.UDP{SrcPort: port, DstPort: 53})
}

func (b *bench) answer(to netip.Addr, port uint16) firewall.Verdict {
	b.t.Helper()
	return b.evaluate(firewall.Out, benchHost, to, build.UDP{SrcPort: 53, DstPort: port})
}

func (b *bench) segment(in bool, peer netip.Addr, port uint16, flags uint8, seq, ack uint32,
	data int) firewall.Verdict {
	b.t.Helper()
	t := build.TCP{SrcPort: port, DstPort: 80, Flags: flags, Seq: seq, Ack: ack, Window: 1000}
	if in {
		return b.evaluate(firewall.In, peer, benchHost, t, build.Data(make([]byte, data)))
	}
	t.SrcPort, t.DstPort = 80, port
	return b.evaluate(firewall.Out, benchHost, peer, t, build.Data(make([]byte, data)))
}

// connect opens a connection to port 80 of the host.
func (b *bench) connect(peer netip.Addr, port uint16) bool {
	b.t.Helper()
	return b.segment(true, peer, port, packet.FlagSYN, 100, 0, 0).Pass &&
		b.segment(false, peer, port, packet.FlagSYN|packet.FlagACK, 900, 101, 0).Pass &&
		b.segment(true, peer, port, packet.FlagACK, 101, 901, 0).Pass
}

// works reports whether a connection that connect has opened still has its state.
func (b *bench) works(peer netip.Addr, port uint16) bool {
	b.t.Helper()
	return b.segment(true, peer, port, packet.FlagACK, 101, 901, 0).State == firewall.StateHit
}

// phases counts the states by phase.
func (b *bench) phases() map[flow.Phase]int {
	b.t.Helper()
	n := map[flow.Phase]int{}
	for s, err := range b.e.States() {
		if err != nil {
			b.t.Fatal(err)
		}
		n[s.Phase]++
	}
	return n
}

func (b *bench) stats() Stats {
	b.t.Helper()
	s, err := b.e.Stats()
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

const proofRules = `add check-state
add allow udp from any to me 53 keep-state
add allow sctp from any to me keep-state
add allow tcp from any to me 80 setup keep-state
add allow tcp from me to any setup keep-state
add deny ip from any to any
`

// TestSpoofedQueriesAreEvicted: the host answers questions of forged sources. However many, new
// connections come and go, and established ones stay. So many answered questions do not begin SYN
// cookies.
func TestSpoofedQueriesAreEvicted(t *testing.T) {
	b := newBench(t, proofRules, func(o *firewall.Options) {
		o.MaxStates, o.MaxHalfOpen = 3000, 2000
	})
	for i := range 200 {
		if !b.connect(outsider(1<<20+i), 1000) {
			t.Fatal("a connection does not open")
		}
		// A datagram of the client's after an answer establishes a flow of UDP, too.
		b.ask(outsider(1<<20+i), 7)
		b.answer(outsider(1<<20+i), 7)
		b.ask(outsider(1<<20+i), 7)
	}
	if n := b.phases(); n[flow.PhaseEstablished] != 400 {
		t.Fatalf("before: %v", n)
	}
	for i := range 6000 {
		if v := b.ask(outsider(i), 5); !v.Pass {
			t.Fatalf("question %d: %+v", i, v)
		}
		if v := b.answer(outsider(i), 5); !v.Pass {
			t.Fatalf("answer %d: %+v", i, v)
		}
	}
	if n := b.phases(); n[flow.PhaseEstablished] != 400 || n[flow.PhaseAnswered] < 1800 {
		t.Errorf("after the flood: %v", n)
	}
	if s := b.stats(); s.HalfOpen < 1800 || s.Cookies.TimesOn != 0 {
		t.Errorf("%d half-open, cookies switched on %d times", s.HalfOpen, s.Cookies.TimesOn)
	}
	for i := range 200 {
		if !b.connect(outsider(1<<21+i), 2000) {
			t.Errorf("connection %d does not come in", i)
		}
		if v := b.evaluate(firewall.Out, benchHost, outsider(1<<21+i),
			build.TCP{SrcPort: 3000, DstPort: 443, Flags: packet.FlagSYN}); !v.Pass {
			t.Errorf("connection %d does not go out: %+v", i, v)
		}
		if !b.works(outsider(1<<20+i), 1000) {
			t.Errorf("established connection %d is gone", i)
		}
	}
	if n := b.phases(); n[flow.PhaseEstablished] != 600 {
		t.Errorf("at the end: %v", n)
	}
	b.now += time.Minute
	if err := sweepAt(b.e, b.now); err != nil {
		t.Fatal(err)
	}
	var g weirGauge
	if err := b.e.objects.Gauges.Lookup(uint32(0), &g); err != nil || g.HalfOpen != 0 ||
		g.Answered != 0 {
		t.Errorf("with the half-open states gone %d are counted, %d answered: %v", g.HalfOpen,
			g.Answered, err)
	}
	if n := b.e.sourcesInUse(t); n != 0 {
		t.Errorf("the counters of sources add up to %d", n)
	}
}

// TestSpoofedINITs does the same by SCTP: an INIT and its answer establish nothing.
func TestSpoofedINITs(t *testing.T) {
	b := newBench(t, proofRules, func(o *firewall.Options) {
		o.MaxStates, o.MaxHalfOpen = 3000, 2000
	})
	chunk := func(dir firewall.Direction, peer netip.Addr, typ uint8, tag uint32) firewall.Verdict {
		t.Helper()
		body := make([]byte, 28)
		binary.BigEndian.PutUint16(body, 5000)
		binary.BigEndian.PutUint16(body[2:], 5001)
		binary.BigEndian.PutUint32(body[4:], tag)
		body[12], body[15] = typ, 16
		from, to := peer, benchHost
		if dir == firewall.Out {
			binary.BigEndian.PutUint16(body, 5001)
			binary.BigEndian.PutUint16(body[2:], 5000)
			from, to = to, from
		}
		raw := enginetest.Packet(t, build.IPv4{Src: from, Dst: to, Proto: packet.ProtoSCTP},
			build.Data(body))
		v, err := b.e.Evaluate(&firewall.Input{Now: b.now,
			Hook: firewall.Hook{Dir: dir, Recv: uint32(1 - dir), Xmit: uint32(dir)}}, raw)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	good := outsider(1 << 22)
	chunk(firewall.In, good, 1, 0)
	chunk(firewall.Out, good, 2, 7)
	chunk(firewall.In, good, 10, 9)
	for i := range 6000 {
		if v := chunk(firewall.In, outsider(i), 1, 0); !v.Pass {
			t.Fatalf("INIT %d: %+v", i, v)
		}
		chunk(firewall.Out, outsider(i), 2, 7)
	}
	if n := b.phases(); n[flow.PhaseEstablished] != 1 || n[flow.PhaseAnswered] < 1800 {
		t.Errorf("after the flood: %v", n)
	}
	if v := chunk(firewall.Out, good, 0, 7); v.State != firewall.StateHit {
		t.Errorf("the association is gone: %+v", v)
	}
	if !b.connect(outsider(1<<21), 2000) {
		t.Error("a connection does not come in")
	}
	b.now += 21 * time.Second
	if n := b.phases(); n[flow.PhaseAnswered] != 0 {
		t.Errorf("answered INITs live on: %v", n)
	}
}

// TestHalfOpenGiveWayInAFullTable: a table that is full of established and half-open states, with
// fewer half-open ones than there may be, takes new connections in place of half-open ones. (Of a
// new state's two sets one has some, as long as most states are half-open.)
func TestHalfOpenGiveWayInAFullTable(t *testing.T) {
	b := newBench(t, proofRules, func(o *firewall.Options) {
		o.MaxStates, o.MaxHalfOpen, o.NoCookies = 1000, 950, true
	})
	const established, more = 200, 100
	for i := range established {
		if !b.connect(outsider(1<<20+i), 1000) {
			t.Fatal("a connection does not open")
		}
	}
	for i := 0; b.stats().States < 1000; i++ {
		b.segment(true, outsider(i), 5, packet.FlagSYN, 100, 0, 0)
	}
	if n := b.phases(); n[flow.PhaseOpening] > 850 {
		t.Fatalf("the half-open ones are as many as there may be: %v", n)
	}
	for i := range more {
		if !b.connect(outsider(1<<21+i), 2000) {
			t.Errorf("connection %d is refused", i)
		}
	}
	for i := range established {
		if !b.works(outsider(1<<20+i), 1000) {
			t.Errorf("established connection %d is gone", i)
		}
	}
	if s := b.stats(); s.States > 1050 || s.Removed["reclaimed"] < more/2 {
		t.Errorf("%d states, %v removed", s.States, s.Removed)
	}
}

// TestForgedSourceLocksNoClientOut: an outsider forges a client's address, and the host's own.
// Neither is refused anything by that, nor loses what is established.
func TestForgedSourceLocksNoClientOut(t *testing.T) {
	b := newBench(t, proofRules, func(o *firewall.Options) { o.MaxPerSource = 100 })
	victim := outsider(9)
	if !b.connect(victim, 1) {
		t.Fatal("a connection does not open")
	}
	for i := range 1000 {
		if v := b.ask(victim, uint16(1000+i)); !v.Pass {
			t.Fatalf("datagram %d of the victim: %+v", i, v)
		}
		b.ask(benchHost, uint16(1000+i))
	}
	if s := b.stats(); s.HalfOpen > 160 || s.Removed["source"] < 850 ||
		s.Removed["reclaimed"] != 0 {
		t.Errorf("%d half-open, %v removed", s.HalfOpen, s.Removed)
	}
	if !b.connect(victim, 2) || !b.works(victim, 1) {
		t.Error("the victim is refused a connection, or has lost one")
	}
	for i := range 45 {
		v := b.evaluate(firewall.Out, benchHost, outsider(i),
			build.TCP{SrcPort: 3000, DstPort: 443, Flags: packet.FlagSYN})
		if !v.Pass {
			t.Errorf("the host's own connection %d: %+v", i, v)
		}
	}
	if s := b.stats(); s.Removed["source"] > 1000 {
		t.Errorf("%v removed", s.Removed)
	}
}

// TestFewPerSource: where a source may have four half-open states, 7,500 other sources with one
// each, nine tenths of all that there may be, evict none.
func TestFewPerSource(t *testing.T) {
	b := newBench(t, proofRules, func(o *firewall.Options) {
		o.MaxPerSource, o.MaxHalfOpen = 4, 8192
	})
	random := rand.New(rand.NewPCG(1, 2))
	for range 7500 {
		b.ask(outsider(random.IntN(1<<24)), 5)
	}
	if s := b.stats(); s.Removed["source"] > 8 || s.HalfOpen < 7400 {
		t.Errorf("%d half-open, %v removed", s.HalfOpen, s.Removed)
	}
	before := b.stats().Removed["source"]
	for i := range 200 {
		if v := b.ask(outsider(1<<25+i), 5); !v.Pass {
			t.Errorf("source %d: %+v", i, v)
		}
	}
	if s := b.stats(); s.Removed["source"] > before+2 {
		t.Errorf("for 200 fresh sources %d were evicted", s.Removed["source"]-before)
	}
}

// TestBlindResetOfAdopted: a guess does not end an adopted connection, before and after its numbers
// are known.
func TestBlindResetOfAdopted(t *testing.T) {
	b := newBench(t, proofRules, func(*firewall.Options) {})
	peer := outsider(1)
	rule := b.e.prog.Rules[3]
	made, err := b.e.Adopt([]firewall.State{{Proto: packet.ProtoTCP,
		From: netip.AddrPortFrom(peer, 7), To: netip.AddrPortFrom(benchHost, 80),
		Key: rule.Key, FlowName: "default"}})
	if err != nil || made != 1 {
		t.Fatal(made, err)
	}
	for i := range uint32(50) {
		b.segment(true, peer, 7, packet.FlagRST, i<<26, 0, 0)
		b.segment(false, peer, 7, packet.FlagRST|packet.FlagACK, i<<26, 5, 0)
		b.segment(true, peer, 7, packet.FlagSYN, i<<26, 0, 0)
	}
	if n := b.phases(); n[flow.PhaseEstablished] != 1 {
		t.Fatalf("before its first segment: %v", n)
	}
	b.segment(true, peer, 7, packet.FlagACK, 5000, 90000, 10)
	b.segment(true, peer, 7, packet.FlagRST, 5011, 0, 0)
	b.segment(false, peer, 7, packet.FlagACK, 90000, 5010, 0)
	if v := b.segment(true, peer, 7, packet.FlagRST, 4000, 0, 0); v.Pass ||
		v.Reason != firewall.ReasonTCPRst {
		t.Errorf("a blind RST: %+v", v)
	}
	b.segment(true, peer, 7, packet.FlagRST, 5011, 0, 0)
	b.now += 2 * time.Second
	if v := b.segment(true, peer, 7, packet.FlagACK, 5010, 90000, 0); v.State != firewall.StateHit {
		t.Errorf("the connection is gone: %+v", v)
	}
	b.segment(true, peer, 7, packet.FlagRST, 5010, 0, 0)
	if n := b.phases(); n[flow.PhaseReset] != 1 {
		t.Errorf("after its own RST: %v", n)
	}
}

// TestSecondSYNACK: the first SYN and ACK was lost, and the server has another number
// since.
func TestSecondSYNACK(t *testing.T) {
	b := newBench(t, proofRules, func(*firewall.Options) {})
	peer := outsider(1)
	b.segment(true, peer, 7, packet.FlagSYN, 100, 0, 0)
	b.segment(false, peer, 7, packet.FlagSYN|packet.FlagACK, 900, 101, 0)
	if v := b.segment(false, peer, 7, packet.FlagSYN|packet.FlagACK, 3000000000, 101,
		0); v.State != firewall.StateHit {
		t.Errorf("the second SYN and ACK: %+v", v)
	}
	if v := b.segment(true, peer, 7, packet.FlagACK, 101, 3000000001,
		0); v.State != firewall.StateHit {
		t.Errorf("its acknowledgement: %+v", v)
	}
	if n := b.phases(); n[flow.PhaseEstablished] != 1 {
		t.Error(n)
	}
	if v := b.segment(false, peer, 7, packet.FlagSYN|packet.FlagACK, 5, 101, 0); v.Pass {
		t.Errorf("a third one, when the connection is open: %+v", v)
	}
}
