package enginetest

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Case is a rule set, or several that are loaded one after the other, and everything that happens
// to an engine.
type Case struct {
	Seed    uint64
	Rules   [][]string // lines of the rule files
	Default op.Action
	Strict  bool
	// PerSource: a source may have few half-open states only.
	PerSource bool
	// FewHalfOpen: there is space for few half-open states.
	FewHalfOpen bool
	// FewTracks: there is space for few tracks, and the first rule makes many.
	FewTracks bool
	Liberal   bool // firewall.Options.Liberal
	NoDHCP    bool // firewall.Options.NoDHCP
	Steps     []Step
}

// StepKind is what a step does.
type StepKind uint8

// The kinds of steps.
const (
	StepPacket StepKind = iota // a packet is evaluated
	// all expired states are ended, then all states and counters are compared
	StepSweep
	// the engine ticks Number times, if it can: it may end expired states, and no others
	StepTick
	StepTable      // SetTable
	StepAdd        // AddTable
	StepDelete     // DeleteTable
	StepInterfaces // SetInterfaces
	StepRoutes     // SetRoutes
	StepLoad       // the rule set Set is loaded, with Tables
	StepZero       // Zero
)

// Step is one thing that happens.
type Step struct {
	Kind    StepKind
	Input   firewall.Input // StepPacket; Now counts for StepSweep and StepTick too
	Packet  []byte
	Name    string // of the table
	Entries []rule.TableEntry
	Ifs     []firewall.Interface
	Routes  []firewall.Route
	Set     int
	Tables  map[string][]rule.TableEntry
	Number  uint16
}

// RandomCase draws a case of n steps.
func RandomCase(seed uint64, have program.Features, options firewall.Options, n int) *Case {
	g := newRandom(seed)
	c := &Case{Seed: seed, Default: op.ActionDeny, Strict: g.chance(80)}
	if g.chance(30) {
		c.Default = op.ActionAllow
	}
	manyPass := have&program.HasNAT != 0 && seed%10 == 9
	if manyPass {
		have &^= program.HasPipe
	}
	first := g.rules(have)
	c.Rules = append(c.Rules, first)
	for g.chance(40) {
		next := append([]string(nil), c.Rules[len(c.Rules)-1]...)
		for range 1 + g.IntN(3) {
			i := g.IntN(len(next))
			switch g.IntN(3) {
			case 0:
				next[i] = g.rule(have, 100*(1+g.IntN(12)))
			case 1:
				next = append(next[:i], next[i+1:]...)
			default:
				next = append(next, g.rule(have, 100*(1+g.IntN(12))))
			}
			if len(next) == 0 {
				next = append(next, g.rule(have, 100))
			}
		}
		c.Rules = append(c.Rules, next)
	}
	if rare(seed) {
		for i := range c.Rules {
			c.Rules[i] = g.rareRules(c.Rules[i], have)
		}
	}
	if manyPass { // which deny_in excludes
		for i := range c.Rules {
			c.Rules[i] = append(c.Rules[i], "nat 2 config ip 203.0.113.2", "disable one_pass")
		}
	}
	c.PerSource, c.FewHalfOpen, c.FewTracks, c.Liberal = g.chance(15), g.chance(15), g.chance(15),
		g.chance(10)
	c.NoDHCP = g.chance(10)
	// alone: the order of several evictions for one packet is not observable
	if c.FewTracks {
		c.PerSource, c.FewHalfOpen = false, false
		many := fmt.Sprintf("add 1 count ip from any to any limit %s %d :many",
			g.one("src-port dst-addr", "src-addr src-port", "src-addr dst-addr dst-port"), 1+
				g.IntN(3))
		for i := range c.Rules {
			c.Rules[i] = append([]string{many}, c.Rules[i]...)
		}
	}
	c.Steps = append(c.Steps, Step{Kind: StepInterfaces, Ifs: g.interfaces()},
		Step{Kind: StepRoutes, Routes: g.routes()})
	for _, name := range tables {
		s := Step{Kind: StepTable, Name: name}
		for g.chance(75) {
			s.Entries = append(s.Entries, g.entry())
		}
		c.Steps = append(c.Steps, s)
	}
	now := time.Duration(1+g.IntN(1000)) * time.Second
	if seed%13 == 2 {
		now += newRandom(seed ^ 1).years()
	}
	var open []*randomFlow
	for len(c.Steps) < n {
		now += g.pause(&options)
		s, begun := g.step(c, now, open)
		if begun != nil {
			if len(open) < 12 {
				open = append(open, begun)
			} else {
				open[g.IntN(len(open))] = begun
			}
		}
		c.Steps = append(c.Steps, s)
	}
	return c
}

// years returns how long a host has been up when counters of milliseconds, or of other powers of
// two of nanoseconds, have just not overflowed 32 bits: weeks or years.
func (g random) years() time.Duration {
	overflows := []time.Duration{1 << 32 * time.Millisecond, 1 << 52, 1 << 54, 1 << 56, 1 << 58,
		1 << 59, 1 << 61}
	return overflows[g.IntN(len(overflows))] - time.Duration(g.IntN(1500))*time.Second
}

// pause returns how long nothing happens: mostly next to nothing, now and then just about a
// lifetime, hardly ever for days.
func (g random) pause(o *firewall.Options) time.Duration {
	t := &o.Timeouts
	switch n := g.IntN(100); {
	case n < 70:
		return time.Duration(g.IntN(50)) * time.Millisecond
	case n < 93:
		return time.Duration(g.IntN(1000)) * time.Millisecond
	case n < 98:
		lives := []time.Duration{t.Syn, t.Fin, t.Rst, t.UDP, t.UDPReply, t.Short}
		return lives[g.IntN(len(lives))] + time.Duration(g.IntN(3)-1)*time.Millisecond
	case n == 98:
		return 30*time.Second + time.Duration(g.IntN(3)-1)*time.Millisecond
	case g.chance(10): // the machine slept
		return time.Duration(1+g.IntN(100)) * time.Hour
	}
	return t.Established + time.Duration(g.IntN(3)-1)*time.Millisecond
}

// step draws what happens next. talked is a flow that has begun with it.
func (g random) step(c *Case, now time.Duration, open []*randomFlow) (s Step, begun *randomFlow) {
	switch n := g.IntN(1000); {
	case n < 15:
		return Step{Kind: StepSweep, Input: firewall.Input{Now: now}}, nil
	case n < 45:
		return Step{Kind: StepTick, Input: firewall.Input{Now: now},
			Number: uint16(1 + g.IntN(400))}, nil
	case n < 50:
		s := Step{Kind: StepTable, Name: g.one(tables...)}
		for g.chance(70) {
			s.Entries = append(s.Entries, g.entry())
		}
		return s, nil
	case n < 58:
		return Step{Kind: StepAdd, Name: g.one(tables...),
			Entries: []rule.TableEntry{g.entry()}}, nil
	case n < 64:
		return Step{Kind: StepDelete, Name: g.one(tables...),
			Entries: []rule.TableEntry{g.entry()}}, nil
	case n < 68:
		return Step{Kind: StepInterfaces, Ifs: g.interfaces()}, nil
	case n < 70:
		return Step{Kind: StepRoutes, Routes: g.routes()}, nil
	case n < 76 && len(c.Rules) > 1:
		s := Step{Kind: StepLoad, Set: g.IntN(len(c.Rules))}
		for g.chance(40) {
			if s.Tables == nil {
				s.Tables = map[string][]rule.TableEntry{}
			}
			var members []rule.TableEntry
			for g.chance(60) {
				members = append(members, g.entry())
			}
			s.Tables[g.one(tables...)] = members
		}
		return s, nil
	case n < 78:
		return Step{Kind: StepZero, Number: uint16(100 * g.IntN(5))}, nil
	}
	s = Step{Kind: StepPacket, Input: firewall.Input{Now: now, Random: g.Uint32()}}
	for g.chance(8) {
		s.Input.Tags = append(s.Input.Tags, uint16(1+g.IntN(12)))
	}
	t := begun
	if len(open) == 0 || g.chance(12) {
		t = g.randomFlow()
		begun = t
	} else {
		t = open[g.IntN(len(open))]
	}
	var from int
	n := g.IntN(100)
	switch {
	case rare(c.Seed) && g.chance(8):
		s.Packet, from = t.rarePacket(g)
		n = 20
	case n < 6 && t.last != nil:
		s.Packet, from = t.wrongPacket(g)
	case n < 14:
		s.Packet, from = t.fragment(g)
	case n < 16:
		s.Packet, from = g.essential(), 0
	case n < 19:
		s.Packet, from = g.malformed(), 0
	case n < 22:
		s.Packet, s.Input.Hook = g.dhcp()
		return s, begun
	default:
		s.Packet, from = t.next(g)
	}
	if rare(c.Seed) && g.chance(40) {
		b := g.rareHeaders(s.Packet)
		if n >= 22 && t.last != nil {
			t.last = b
		}
		s.Packet = b
	}
	if g.chance(4) {
		s.Packet = g.damage(s.Packet)
	}
	s.Input.Hook = t.hook(g, from)
	if n < 14 && g.chance(30) { // a part that comes another way than the rest
		s.Input.Hook.Recv = g.Uint32N(4)
	}
	s.Input.Segments = newRandom(uint64(s.Input.Random)).segments(s.Packet)
	return s, begun
}

// segments makes a GSO packet of some of TCP and UDP with data.
func (g random) segments(b []byte) []uint16 {
	var p packet.Packet
	p.Decode(b)
	if g.chance(70) || p.Reason != packet.ReasonNone || p.IsFragment() || p.PayloadLen() < 1 ||
		p.Proto != packet.ProtoTCP && p.Proto != packet.ProtoUDP {
		return nil
	}
	return []uint16{uint16(1 + g.IntN(p.PayloadLen()+1))}
}

// damage cuts a packet short, flips bits, or lets something follow it.
func (g random) damage(b []byte) []byte {
	b = append([]byte(nil), b...)
	switch g.IntN(3) {
	case 0:
		return b[:g.IntN(len(b)+1)]
	case 1:
		if len(b) == 0 {
			return b
		}
		for range 1 + g.IntN(4) {
			b[g.IntN(len(b))] ^= 1 << g.IntN(8)
		}
		return b
	}
	return append(b, make([]byte, g.IntN(10))...)
}

// essential returns neighbour discovery or MLD, mostly as it must be.
func (g random) essential() []byte {
	c := craft{src: netip.MustParseAddr("fe80::9"), dst: netip.MustParseAddr(g.one(addrs6...)),
		proto: packet.ProtoICMPv6, ttl: 255}
	typ := uint8(133 + g.IntN(4))
	if g.chance(30) {
		typ, c.ttl = []uint8{130, 131, 132, 143}[g.IntN(4)], 1
		c.first, c.options = packet.ProtoHopByHop, []byte{0, 0, 5, 2, 0, 0, 1, 0}
	}
	if g.chance(20) {
		c.ttl = 64
	}
	c.body = icmpBody(typ, 0, 0, make([]byte, 20))
	return c.bytes()
}
