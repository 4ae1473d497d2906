package kernel

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestSequenceNumberBounds plays TCP connections whose numbers lie at, just before and just behind
// every bound that the state machine compares with, to the kernel and to flow.State.
func TestSequenceNumberBounds(t *testing.T) {
	nstest.RequireRoot(t)
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxTracks = 4096, 4096, 64
	e := newPartEngine(t, o)
	if err := e.Load(compile(t,
		"add check-state\nadd allow ip from any to any keep-state\n")); err != nil {
		t.Fatal(err)
	}
	seed := testrand.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	results := map[flow.Result]int{}
	for n := range 2000 {
		c := &bounds{r: r, e: e, port: uint16(1024 + n), now: time.Duration(n+1) * 1e12,
			results: results}
		for range 25 {
			c.step(t)
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("results: %v", results)
	for want := flow.ResultHit; want <= flow.ResultBadWindow; want++ {
		if results[want] < 20 {
			t.Errorf("%v came only %d times", want, results[want])
		}
	}
}

// bounds is one connection.
type bounds struct {
	r          *rand.Rand
	e          *Engine
	port       uint16
	now        time.Duration
	state      *flow.State
	originator int // the end that made the state: it is side 0
	results    map[flow.Result]int
}

func (c *bounds) pick(values ...uint32) uint32 {
	return values[c.r.IntN(len(values))] + uint32(c.r.IntN(3)) - 1
}

// segment draws a segment of one side.
func (c *bounds) segment(from int) (s build.TCP, length int) {
	flags := []uint8{0x10, 0x10, 0x10, 0x10, 0x18, 0x02, 0x12, 0x12, 0x11, 0x04, 0x14, 0x01, 0x00,
		0x03, 0x06}
	s = build.TCP{SrcPort: c.port, DstPort: 80, Flags: flags[c.r.IntN(len(flags))],
		Window: uint16(c.pick(1, 1, 100, 65535))}
	if s.Flags == 0x02 || s.Flags == 0x12 {
		if c.r.IntN(2) == 0 {
			s.Options = []byte{3, 3, byte(c.r.IntN(16)), 0}
		}
	}
	length = c.r.IntN(3)
	if from == 1 {
		s.SrcPort, s.DstPort = 80, c.port
	}
	if c.state == nil {
		s.Seq, s.Ack = c.r.Uint32(), c.r.Uint32()
		return s, length
	}
	side := from ^ c.originator
	d, p := &c.state.Sides[side], &c.state.Sides[1-side]
	n := uint32(length)
	s.Seq = c.pick(d.Start, d.Start+1, d.End, d.End, d.End, p.Ack, p.Edge, p.Edge-n, p.Edge+1-n,
		d.End-max(p.Win, 66000)-n, d.Start+1+p.Win, d.Start+2+p.Win-n)
	s.Ack = c.pick(p.Start, p.End, p.End, p.End, p.End-max(d.Win, 66000), d.Ack)
	if c.r.IntN(3) == 0 { // as a real end would say it
		s.Seq, s.Ack = d.End, p.End
	}
	return s, length
}

func (c *bounds) step(t *testing.T) {
	from := c.r.IntN(2)
	if c.state == nil {
		from = 0
	}
	s, length := c.segment(from)
	ends := [2]netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")}
	b := enginetest.Packet(t, build.IPv4{Src: ends[from], Dst: ends[1-from]}, s,
		build.Data(make([]byte, length)))
	var p packet.Packet
	p.Decode(b)
	seg := flow.SegmentOf(&p, b)
	c.now += time.Duration(c.r.IntN(100)) * time.Millisecond
	got, err := c.e.Evaluate(&firewall.Input{Now: c.now}, b)
	if err != nil {
		t.Fatal(err)
	}
	before := c.state
	if before != nil {
		copied := *before
		before = &copied
	}
	want, result := c.expect(&seg, from)
	c.results[result]++
	if got.Pass != (want.Reason == firewall.ReasonRule) || got.Reason != want.Reason ||
		got.State != want.State {
		t.Errorf("state %+v, segment %+v from side %d: kernel %+v, flow %v %+v", before, seg, from,
			got, result, want)
	}
}

// expect moves the state in Go and says what the verdict has to be.
func (c *bounds) expect(seg *flow.Segment, from int) (firewall.Verdict, flow.Result) {
	r := flow.ResultRecycle
	t := flow.DefaultTimeouts()
	if c.state != nil && c.now <= c.state.Deadline(&t) {
		r = c.state.Step(seg, flow.Dir(from^c.originator), c.now, flow.ModeStrict)
	}
	reasons := map[flow.Result]firewall.Reason{flow.ResultBadFlags: firewall.ReasonTCPFlags,
		flow.ResultBadRst: firewall.ReasonTCPRst,
		flow.ResultBadAck: firewall.ReasonTCPAck, flow.ResultBadWindow: firewall.ReasonTCPWindow}
	switch r {
	case flow.ResultHit:
		return firewall.Verdict{State: firewall.StateHit}, r
	case flow.ResultUntouched:
		return firewall.Verdict{State: firewall.StateUntouched}, r
	case flow.ResultRecycle:
		s, ok := flow.New(packet.ProtoTCP, seg, c.now)
		if !ok {
			c.state = nil
			return firewall.Verdict{Reason: firewall.ReasonTCPFlags}, r
		}
		c.state, c.originator = &s, from
		return firewall.Verdict{State: firewall.StateNew}, r
	}
	return firewall.Verdict{Reason: reasons[r]}, r
}
