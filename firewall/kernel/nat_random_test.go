package kernel

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
)

// mixedRules keep states for most, none for questions to port 53, and refuse some packets on their
// way in and some on their way out.
const mixedRules = "add 1 check-state\nadd 2 deny ip from any to any 666\n" +
	"add 3 deny udp from any to 10.88.0.3 53 out\n" +
	"add 4 deny udp from any to 192.0.2.2 53 out recv pod:b\n" +
	"add 5 allow udp from any to any 53\nadd 6 allow tcp from any to any setup keep-state\n" +
	"add 7 allow udp from any to any keep-state\nadd 8 allow icmp from any to any\n" +
	"add 9 deny ip from any to any\n"

// TestTranslationsAgainstTheModel sends random sequences through the hooks and through the
// reference model. Verdicts, tuples, and the whole table of translations with its phases have to be
// the same after each packet.
func TestTranslationsAgainstTheModel(t *testing.T) {
	t.Parallel()
	compareTranslations(t, 1500, 0)
}

// TestLongTranslationsAgainstTheModel sends more, and as many as WEIR_DECISIONS says, until two
// flows clash: the kernel draws ports, so they do sooner or later.
func TestLongTranslationsAgainstTheModel(t *testing.T) {
	packets := 6000
	if n, err := strconv.Atoi(os.Getenv("WEIR_DECISIONS")); err == nil {
		packets = n
	}
	const most = 60000
	if compareTranslations(t, packets, most) == 0 {
		t.Error("no two flows have clashed")
	}
}

// compareTranslations sends so many packets, and up to most until one leaves from another source
// port than it had. It returns how many did.
func compareTranslations(t *testing.T, packets, most int) (moved int) {
	t.Helper()
	f := newFrames(t, mixedRules)
	f.masquerade(2000, 2999)
	model := func() *enginetest.Translator {
		return &enginetest.Translator{Hides: true, Published: map[enginetest.Port]netip.AddrPort{
			{Proto: 6, To: end(hostAddr, 8080)}:  end(podA, 80),
			{Proto: 17, To: end(hostAddr, 8080)}: end(podA, 80),
			{Proto: 17, To: end(hostAddr, 5353)}: end(podB, 53),
			{Proto: 17, To: end(hostAddr, 6666)}: end(podA, 666),
		}}
	}
	f.must(f.host.Do(func() error {
		return f.engine.SetPublished([]forward.Published{
			{Proto: packet.ProtoTCP, Host: end(hostAddr, 8080), Pod: end(podA, 80)},
			{Proto: packet.ProtoUDP, Host: end(hostAddr, 8080), Pod: end(podA, 80)},
			{Proto: packet.ProtoUDP, Host: end(hostAddr, 5353), Pod: end(podB, 53)},
			{Proto: packet.ProtoUDP, Host: end(hostAddr, 6666), Pod: end(podA, 666)},
		})
	}))
	return f.compare(t, packets, most, mixedRules, model)
}

// compare sends packets in sequences, each of which begins with an empty table. It returns how many
// left from another source port.
func (f *frames) compare(t *testing.T, packets, most int, rules string,
	model func() *enginetest.Translator) (moved int) {
	t.Helper()
	const sequence = 150
	passed, sent := 0, 0
	for seed := testrand.Seed(t); sent < packets || moved == 0 && sent < most; seed++ {
		sent += sequence
		m := &natMatch{frames: f, t: t, r: rand.New(rand.NewPCG(seed, 14)), seed: seed,
			model: model()}
		m.begin(rules)
		for i := range sequence {
			if !m.one(i) {
				t.Fatalf("sequence %d, packet %d", seed, i)
			}
		}
		passed, moved = passed+m.passed, moved+m.moved
	}
	t.Logf("%d packets passed, %d with another source port", passed, moved)
	if passed == 0 {
		t.Error("no packet passed")
	}
	return moved
}

// natMatch is one sequence.
type natMatch struct {
	*frames
	t      *testing.T
	r      *rand.Rand
	model  *enginetest.Translator
	skew   time.Duration // by how much time was moved on
	passed int
	moved  int // to another source port
	seed   uint64
}

func (m *natMatch) begin(text string) {
	m.must(m.engine.endWhere(func(*entry) bool { return true }))
	set, err := rule.ParseFile("rules", text, nil)
	m.must(err)
	p := compile(m.t, text)
	rules := enginetest.NewModel(firewall.DefaultOptions())
	rules.SetInterfaces(m.ifs)
	rules.Load(set, rule.CompileOptions{Strict: true}, enginetest.Keys(p))
	m.model.Rules, m.model.Host, m.model.Card = rules, hostAddr, m.nic.index
	m.model.Pods = map[netip.Addr]uint32{podA: m.a.endpoint.Index, podB: m.b.endpoint.Index}
}

func (m *natMatch) now() time.Duration { return time.Duration(monotonic()) + m.skew }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// one sends a packet and compares.
func (m *natMatch) one(i int) bool {
	if m.r.IntN(12) == 0 {
		m.pause()
	}
	e := m.ends()
	seg := m.segment()
	m.settleClock()
	build := func(e enginetest.Ends) []byte { return m.build(e, seg) }
	code, src, dst := m.send(e.From, e.To, m.layer(e.Proto, seg))
	m.model.Chosen = 1 // of a packet that is refused
	if code != wasShot && src.Addr() == e.From.Addr() && src != e.From {
		m.model.Chosen = src.Port()
		if src.Port() < 2000 || src.Port() > 2999 {
			m.t.Errorf("another source port, %d", src.Port())
		}
		m.moved++
	}
	want := m.model.Forward(e, m.now(), build)
	what := func(format string, args ...any) bool {
		m.t.Errorf("%d %s>%s %+v", e.Proto, e.From, e.To, seg)
		m.t.Errorf(format, args...)
		return false
	}
	wantCode := int32(wasShot)
	switch {
	case want.Up:
		wantCode = wentUp
	case want.Routed:
		wantCode = wentUp
		m.passed++
	case want.Pass:
		wantCode = redirected
		m.passed++
	}
	if code != wantCode {
		return what("returned %d, not %d", code, wantCode)
	}
	if wantCode == redirected || want.Routed {
		if want.Made != nil {
			if src.Port() < 2000 || src.Port() > 2999 {
				return what("hidden behind port %d", src.Port())
			}
			want.Made.Wire.From = netip.AddrPortFrom(hostAddr, src.Port())
			want.Out.From = want.Made.Wire.From
			for _, o := range m.model.Live {
				if o != want.Made && o.Source && o.Wire == want.Made.Wire {
					return what("two flows have the port %d", src.Port())
				}
			}
		}
		if src != want.Out.From || dst != want.Out.To {
			return what("went as %s>%s, not %s>%s", src, dst, want.Out.From, want.Out.To)
		}
	}
	return m.same(what)
}

// same compares the tables of translations.
func (m *natMatch) same(what func(string, ...any) bool) bool {
	now := m.now()
	have := map[string]flow.Phase{}
	all, err := m.engine.translations(m.engine.now())
	m.must(err)
	for _, s := range all {
		w, i := enginetest.Ends{Proto: s.Proto, From: s.WireFrom, To: s.WireTo},
			enginetest.Ends{Proto: s.Proto, From: s.From, To: s.To}
		have[natName(w, i)] = s.Phase
	}
	for _, o := range m.model.Live {
		if now > m.model.Deadline(o) {
			continue
		}
		name := natName(o.Wire, o.Inner)
		phase, ok := have[name]
		if !ok || phase != o.Phase {
			return what("translation %s: %s (there: %v), not %s", name, phase, ok, o.Phase)
		}
		delete(have, name)
	}
	for name, phase := range have {
		return what("translation %s, %s, should not be there", name, phase)
	}
	return true
}

func natName(wire, inner enginetest.Ends) string {
	return strconv.Itoa(int(wire.Proto)) + " " + wire.From.String() + ">" + wire.To.String() +
		" = " + inner.From.String() + ">" + inner.To.String()
}

// pause lets time go by.
func (m *natMatch) pause() {
	m.moveOn(pick(m.r, 1500*time.Millisecond, 5*time.Second, 17*time.Second, 41*time.Second,
		350*time.Second))
}

func (m *natMatch) moveOn(d time.Duration) {
	m.age(m.t, d)
	m.skew += d
}

// settleClock moves time on until nothing is about to end: both clocks differ by some milliseconds,
// and translations are exact to a second.
func (m *natMatch) settleClock() {
	for again := true; again; {
		again = false
		now := m.now()
		near := func(deadline time.Duration) bool {
			return deadline-now < enginetest.Exact+3e8 && now-deadline < 3e8
		}
		for _, s := range m.model.Rules.States() {
			again = again || near(s.Deadline)
		}
		for _, o := range m.model.Live {
			again = again || near(m.model.Deadline(o))
		}
		if again {
			m.moveOn(370 * time.Millisecond)
		}
	}
}

// ends chooses between whom a packet goes: few ports, so that they meet again.
func (m *natMatch) ends() enginetest.Ends {
	r, proto := m.r, pick(m.r, uint8(packet.ProtoTCP), packet.ProtoTCP, packet.ProtoUDP)
	outside := func() netip.AddrPort { return end(outsideAddr, pick(r, 53, 80, 666, 4000, 4001)) }
	inside := func() netip.AddrPort { return end(pick(r, podA, podB), pick(r, 53, 80, 5000, 5001)) }
	if len(m.model.Live) > 0 && r.IntN(3) > 0 { // along a flow that is there
		// As it goes over the wire, or as the pod sends; what the host itself would send does
		// not come in.
		o := m.model.Live[r.IntN(len(m.model.Live))]
		for _, k := range r.Perm(4) {
			e := [...]enginetest.Ends{o.Wire, o.Wire.Reversed(), o.Inner, o.Inner.Reversed()}[k]
			if e.From.Addr() != hostAddr && e.From.Addr() != virtual[0] {
				return e
			}
		}
	}
	if len(m.behind) > 0 && r.IntN(3) > 0 {
		return m.endsBehind(packet.Proto(proto))
	}
	if m.model.Services != nil && r.IntN(2) > 0 {
		return enginetest.Ends{Proto: packet.Proto(proto),
			From: pick(r, end(outsideAddr, pick(r, 4000, 4001, 4002, 4003)),
				end(podB, pick(r, 5000, 5001))),
			To: end(virtual[0], pick(r, 80, 53, 666, 9))}
	}
	switch r.IntN(5) {
	case 0:
		return enginetest.Ends{Proto: packet.Proto(proto), From: outside(),
			To: end(hostAddr, pick(r, 8080, 5353, 6666, 2000+r.IntN(3)))}
	case 1:
		return enginetest.Ends{Proto: packet.Proto(proto),
			From: end(outsideAddr, pick(r, 4000, 4001)),
			To:   inside()}
	case 2:
		return enginetest.Ends{Proto: packet.Proto(proto), From: end(podB, pick(r, 5000, 5001)),
			To: pick(r, end(hostAddr, 8080), end(podA, 80))}
	}
	return enginetest.Ends{Proto: packet.Proto(proto), From: inside(), To: outside()}
}

// step is a segment of a handshake, of what follows, or a guess.
type step struct {
	flags    uint8
	seq, ack uint32
}

func (m *natMatch) segment() step {
	return pick(m.r,
		step{packet.FlagSYN, 1000, 0}, step{packet.FlagSYN, 1000, 0}, step{packet.FlagSYN, 9000, 0},
		step{packet.FlagSYN | packet.FlagACK, 1000, 1001},
		step{packet.FlagSYN | packet.FlagACK, 1000, 1001},
		step{packet.FlagACK, 1001, 1001}, step{packet.FlagACK, 1001, 1001},
		step{packet.FlagFIN | packet.FlagACK, 1001, 1001},
		step{packet.FlagFIN | packet.FlagACK, 1001, 1002}, step{packet.FlagACK, 1002, 1002},
		step{packet.FlagRST, 1001, 0}, step{packet.FlagRST, 5 << 28,
			0}, step{packet.FlagFIN | packet.FlagACK, 5 << 28, 77})
}

func (m *natMatch) layer(proto packet.Proto, s step) build.Layer {
	if proto == packet.ProtoUDP {
		return build.UDP{}
	}
	return build.TCP{Seq: s.seq, Ack: s.ack, Flags: s.flags, Window: 1000}
}

func (m *natMatch) build(e enginetest.Ends, s step) []byte {
	var l build.Layer = build.UDP{SrcPort: e.From.Port(), DstPort: e.To.Port()}
	if e.Proto == packet.ProtoTCP {
		l = build.TCP{SrcPort: e.From.Port(), DstPort: e.To.Port(), Seq: s.seq, Ack: s.ack,
			Flags: s.flags, Window: 1000}
	}
	return enginetest.Packet(m.t, build.IPv4{Src: e.From.Addr(), Dst: e.To.Addr(), TTL: 64}, l)
}
