package enginetest

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Model is the reference model: it interprets parsed rules one after the other and searches
// everything from the beginning. It is docs/design/0003-evaluation.md written down as plainly as
// possible; engines are compared with it. It is not safe for concurrent use.
type Model struct {
	Options   firewall.Options
	rules     []*rule.Rule // enabled rules in order of evaluation, the default rule last
	keys      []uint64     // by slot: program.Rule.Key
	counts    []firewall.RuleCounter
	strict    bool
	flows     []string // names of flows in the order of their ids
	states    []*modelState
	rates     map[modelRateKey]modelRate
	pipes     map[uint16]*rule.Pipe
	piped     map[modelPipeKey]modelPipe
	frags     []modelFrag
	tables    map[string][]rule.TableEntry
	ifs       []firewall.Interface
	routes    []firewall.Route
	decisions map[firewall.Decision]firewall.Count
	// reports a state that the engine has ended to make space for one of the packet at hand
	chosen func(*modelState) bool
	// the engine's verdict of the current packet: it may have had no space
	refused *firewall.Verdict
	// reassignedTrack reports a track that the engine has given to another tuple for the packet at
	// hand, and whether it has made it again since.
	reassignedTrack func(Track) (reassignedTrack, again bool)
	seen            coverage // nil unless coverage is measured

	nats     map[uint16]*rule.NAT
	manyPass bool
}

// modelState is a state.
type modelState struct {
	flow.State
	key        flow.Key
	name       string // of the flow
	from       flow.End
	rule       uint64
	tracked    bool // by the rule's limit
	reassigned bool // its track was given to another tuple
	mask       op.LimitMask
	created    time.Duration
}

// modelFrag is the record of a datagram whose first fragment was evaluated.
type modelFrag struct {
	src, dst netip.Addr
	proto    packet.Proto
	id       uint32
	hook     firewall.Hook
	time     time.Duration
	end      uint32
	verdict  firewall.Verdict
	poisoned bool
}

// NewModel returns a model that passes everything until rules are loaded.
func NewModel(o firewall.Options) *Model {
	t := &Model{Options: o, tables: map[string][]rule.TableEntry{},
		decisions: map[firewall.Decision]firewall.Count{}, rates: map[modelRateKey]modelRate{},
		piped: map[modelPipeKey]modelPipe{}}
	t.Load(&rule.Ruleset{}, rule.CompileOptions{Default: op.ActionAllow}, []uint64{1})
	return t
}

// Load replaces the rules. keys are the identities of the rules by slot (program.Rule.Key), so that
// the model and the engines mean the same rule by "the same".
func (t *Model) Load(s *rule.Ruleset, o rule.CompileOptions, keys []uint64) {
	last := &rule.Rule{Number: program.DefaultNumber, Action: rule.Action{Op: op.ActionDeny}}
	if o.Default == op.ActionAllow {
		last.Action.Op = op.ActionAllow
	}
	t.rules = append(s.Active(), last)
	t.deniesIn(s.NATs)
	t.keys, t.strict = keys, o.Strict
	old := t.counts
	t.counts = make([]firewall.RuleCounter, len(t.rules))
	t.flows = []string{"default"}
	for i, r := range t.rules {
		for _, c := range old {
			if c.Key == keys[i] {
				t.counts[i] = c
			}
		}
		t.counts[i].Key, t.counts[i].Number = keys[i], r.Number
		if name := flowName(r); r.State.Op != op.StateNone &&
			!(r.State.Op == op.StateCheck && name == "any") && t.flowID(name) < 0 {
			t.flows = append(t.flows, name)
		}
	}
	t.frags = nil
	t.loadPipes(s.Pipes)
	t.nats, t.manyPass = s.NATs, s.ManyPass
	t.removeStates(func(s *modelState) bool { return t.slot(s.rule) < 0 })
	maps.DeleteFunc(t.rates, func(k modelRateKey, _ modelRate) bool { return t.slot(k.rule) < 0 })
}

// flowName returns the name of a rule's flow.
func flowName(r *rule.Rule) string {
	if r.State.Flow == "" {
		return "default"
	}
	return r.State.Flow
}

func (t *Model) flowID(name string) int {
	for i, f := range t.flows {
		if f == name {
			return i
		}
	}
	return -1
}

// slot returns the slot of the rule with a key, -1 if there is none.
func (t *Model) slot(key uint64) int {
	for i, k := range t.keys {
		if k == key {
			return i
		}
	}
	return -1
}

func (t *Model) removeStates(gone func(*modelState) bool) {
	var left []*modelState
	for _, s := range t.states {
		if !gone(s) {
			left = append(left, s)
		}
	}
	t.states = left
}

// Sweep removes the states that have expired.
func (t *Model) Sweep(now time.Duration) {
	t.removeStates(func(s *modelState) bool { return t.expired(s, now) })
}

// sweepUnless removes the states that have expired except those that keep selects.
func (t *Model) sweepUnless(now time.Duration, keeps func(firewall.State) bool) {
	t.removeStates(func(s *modelState) bool {
		return t.expired(s, now) && !keeps(t.show(s))
	})
}

func (t *Model) expired(s *modelState, now time.Duration) bool {
	return now > s.Deadline(&t.Options.Timeouts)
}

// job is the evaluation of one packet.
type job struct {
	*Model
	in   firewall.Input
	b    []byte
	p    packet.Packet
	now  time.Duration
	tags []uint16

	hasKey bool
	key    flow.Key
	from   flow.End
	isErr  bool
	inner  packet.Packet // what an ICMP error quotes

	asked map[string]bool
	have  map[string]bool
	use   firewall.StateUse
}

// Evaluate evaluates one IP packet.
func (t *Model) Evaluate(in *firewall.Input, pkt []byte) firewall.Verdict {
	j := &job{Model: t, in: *in, b: pkt, now: in.Now, asked: map[string]bool{},
		have: map[string]bool{}}
	j.p.Decode(pkt)
	for _, tag := range in.Tags {
		j.tag(tag)
	}
	j.key, j.from, j.hasKey = flow.KeyOf(&j.p, pkt, in.Hook.Link())
	j.isErr = j.p.ICMPError()
	if quoted, ok := j.p.Inner(pkt); ok {
		t.seen.failure(&j.p, &quoted)
	}
	if j.isErr && j.hasKey {
		_, _, j.inner, _ = flow.QuotedKey(&j.p, pkt, in.Hook.Link())
		j.hasKey = j.inner.Src() == j.p.Dst()
	}
	v := j.evaluate()
	t.seen.verdict(in.Hook.Dir, &j.p, &v)
	d := firewall.Decision{Dir: in.Hook.Dir, Pass: v.Pass, Reason: v.Reason}
	n := t.decisions[d]
	t.decisions[d] = firewall.Count{Packets: n.Packets + 1, Bytes: n.Bytes + uint64(j.p.Len())}
	return v
}

func (j *job) evaluate() firewall.Verdict {
	if j.p.Reason != packet.ReasonNone {
		return firewall.Verdict{Reason: firewall.ReasonDecode + firewall.Reason(j.p.Reason)}
	}
	if j.p.Essential() && !j.Options.NoEssential {
		return firewall.Verdict{Pass: true, Reason: firewall.ReasonEssential}
	}
	if !j.Options.NoDHCP && j.dhcp() {
		j.seen.note(ofDHCP, int(j.in.Hook.Dir),
			map[uint8]string{4: "version 4", 6: "version 6"}[j.p.Version])
		return firewall.Verdict{Pass: true, Reason: firewall.ReasonEssential}
	}
	if j.later() {
		return j.laterFragment()
	}
	v := j.walk()
	if j.p.Frag&packet.FragFirst != 0 {
		j.recordFragment(v)
	}
	return v
}

// later reports whether the packet is a fragment other than the first.
func (j *job) later() bool { return j.p.Frag&packet.FragLater != 0 }

// count counts the packet for a rule.
func (j *job) count(slot int) {
	j.counts[slot].Packets++
	j.counts[slot].Bytes += uint64(j.p.Len())
	j.counts[slot].Last = j.now
}

// walk is section 3 of the page.
func (j *job) walk() firewall.Verdict {
	var calls []int
	jumps := 0
	last := len(j.rules) - 1
	pc := 0
	for {
		slot := pc
		r := j.rules[slot]
		pc = slot + 1
		if r.Prob != 0 {
			if float64(program.Mix(j.in.Random, uint32(slot))) >= r.Prob*(1<<32) {
				j.seen.note(ofMark, 0, "prob not taken")
				continue
			}
			j.seen.note(ofMark, 0, "prob taken")
		}
		if j.later() && !asksFragments(r) && slot != last {
			continue
		}
		hit := false
		state := r.State.Op
		if state.LooksUp() {
			owner, result, reason := j.lookUp(flowName(r), state == op.StateCheck &&
				r.State.Flow == "any")
			switch result {
			case lookDrop:
				return j.drop(owner, reason)
			case lookHit:
				j.seen.state(r, "found")
				slot, hit = owner, true
				r = j.rules[slot]
			}
		}
		if !hit {
			if state == op.StateCheck || !j.matches(r) {
				continue
			}
			if r.Rate.N != 0 && !j.takeRate(slot, r) {
				if r.Rate.Next {
					continue
				}
				return j.drop(slot, firewall.ReasonRate)
			}
			if r.Action.Op == op.ActionNAT && state != op.StateNone { // deny_in
				if j.in.Hook.Dir == firewall.In {
					j.count(slot)
					j.seen.note(ofMark, 0, "deny_in")
					return j.drop(slot, firewall.ReasonRule)
				}
				if j.in.Hook.Recv != 0 {
					state = op.StateNone
				}
			}
			if state != op.StateNone {
				if by, reason := j.requireState(slot, r); reason != firewall.ReasonRule {
					return j.drop(by, reason)
				}
				if r.Defer {
					continue
				}
			}
		}
		if !j.carries(r) {
			return j.drop(slot, firewall.ReasonPipe)
		}
		j.count(slot)
		j.seen.act(r)
		if r.Tag != 0 {
			j.tag(r.Tag)
		}
		if j.later() && slot == last && (j.strict || r.Action.Op == op.ActionDeny) {
			return j.drop(slot, firewall.ReasonFragUnknown)
		}
		pc = slot + 1
		switch r.Action.Op {
		case op.ActionAllow, op.ActionFwd: // the verdict does not say where it goes
			return firewall.Verdict{Pass: true, Rule: r.Number, Slot: uint16(slot), State: j.use}
		case op.ActionPipe:
			// one without a configuration drops
			return firewall.Verdict{Pass: j.pipeOf(r) != nil, Rule: r.Number, Slot: uint16(slot),
				State: j.use}
		case op.ActionNAT:
			if j.nats[uint16(r.Action.Arg)] == nil { // one without a configuration drops
				return j.drop(slot, firewall.ReasonRule)
			}
			if !j.manyPass {
				return firewall.Verdict{Pass: true, Rule: r.Number, Slot: uint16(slot),
					State: j.use}
			}
		case op.ActionCount:
		case op.ActionSkipTo:
			jumps++
			pc = j.target(max(r.Action.Arg, uint32(r.Number)+1))
		case op.ActionCall:
			if len(calls) < program.MaxCalls {
				jumps++
				calls = append(calls, slot+1)
				pc = j.target(r.Action.Arg)
			}
		case op.ActionReturn:
			if n := len(calls); n > 0 {
				jumps++
				pc = calls[n-1]
				calls = calls[:n-1]
			}
		default:
			v := j.drop(slot, firewall.ReasonRule)
			j.answer(r, &v)
			return v
		}
		if jumps > program.MaxJumps {
			return j.drop(slot, firewall.ReasonLoop)
		}
	}
}

// target returns the first slot with a number at or above number.
func (j *job) target(number uint32) int {
	for slot, r := range j.rules {
		if uint32(r.Number) >= number {
			return slot
		}
	}
	return len(j.rules) - 1
}

func (j *job) drop(slot int, reason firewall.Reason) firewall.Verdict {
	return firewall.Verdict{Reason: reason, Rule: j.rules[slot].Number, Slot: uint16(slot),
		State: j.use}
}

func (j *job) tag(tag uint16) {
	if !slices.Contains(j.tags, tag) && len(j.tags) < 8 {
		j.tags = append(j.tags, tag)
	}
}

// answer is section 7 of the page.
func (j *job) answer(r *rule.Rule, v *firewall.Verdict) {
	p := &j.p
	src, dst := p.Src(), p.Dst()
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	for _, a := range []netip.Addr{src, dst} {
		if a.IsMulticast() || a.IsUnspecified() || a == broadcast {
			return
		}
	}
	tcp := p.Proto == packet.ProtoTCP && p.HasPorts()
	if j.later() || j.isErr || tcp && p.TCPFlags&packet.FlagRST != 0 {
		return
	}
	switch r.Action.Op {
	case op.ActionReset:
		if tcp {
			v.Answer = firewall.AnswerReset
		}
	case op.ActionReject:
		if src.Is4() {
			v.Answer, v.Code = firewall.AnswerUnreach, 1
		} else {
			v.Answer, v.Code = firewall.AnswerUnreach6, 3
		}
	case op.ActionUnreach:
		if src.Is4() {
			v.Answer, v.Code = firewall.AnswerUnreach, uint8(r.Action.Arg)
		}
	case op.ActionUnreach6:
		if src.Is6() {
			v.Answer, v.Code = firewall.AnswerUnreach6, uint8(r.Action.Arg)
		}
	}
}
