package soft

import (
	"slices"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// maxTags is the number of tags that a packet carries at most.
const maxTags = 8

// job is the evaluation of one packet: its input, and what has been found so far.
type job struct {
	sh  *shard
	cfg *config
	in  *firewall.Input
	p   *packet.Packet
	b   []byte
	now time.Duration

	rows       rows
	classified bool
	matched    int // the first slot whose vectors match the packet, or -1 if it is not known yet

	key    flow.Key
	hash   uint64
	dir    flow.End // which end of the key the packet comes from
	hasKey bool
	// an ICMP error: key and dir are those of the flow, and it touches nothing
	isErr  bool
	quoted uint32 // the sequence number that the error quotes
	seg    flow.Segment
	hasSeg bool
	state  flow.State // the state that createState makes

	lookedUp [4]uint64 // bit per flow id of the Program: looked up
	have     [4]uint64 // bit per flow id: there is a state
	// what nextLookup has found: look is its result for slots from lookFrom on, until look
	// itself is looked up. Nothing yet if lookFrom is above look.
	lookFrom, look int

	tags  [maxTags]uint16
	ntags int
	use   firewall.StateUse

	dry *dryRun // not nil: nothing may change, and what happens is recorded
}

// evaluate decides about a decoded packet. It is docs/design/0003-evaluation.md, section 2.
func (j *job) evaluate() firewall.Verdict {
	p := j.p
	switch {
	case p.Reason != packet.ReasonNone:
		return firewall.Verdict{Reason: firewall.ReasonDecode + firewall.Reason(p.Reason)}
	case p.Proto == packet.ProtoICMPv6 && !j.cfg.opts.NoEssential && p.Essential():
		return firewall.Verdict{Pass: true, Reason: firewall.ReasonEssential}
	case p.Proto == packet.ProtoUDP && dhcpPorts(p.Ports) && !j.cfg.opts.NoDHCP && j.dhcp():
		return firewall.Verdict{Pass: true, Reason: firewall.ReasonEssential}
	case p.Frag&packet.FragLater != 0:
		return j.laterFragment()
	case p.Frag&packet.FragFirst != 0:
		v := j.walk()
		if j.dry == nil {
			j.sh.engine.frags.record(j, v)
		}
		return v
	}
	return j.walk()
}

// walk runs the rules: section 3 of the specification.
func (j *job) walk() firewall.Verdict {
	for _, t := range j.in.Tags {
		j.tag(t)
	}
	var calls [program.MaxCalls]uint16
	depth, jumps := 0, 0
	later := j.p.Frag&packet.FragLater != 0
	rules := j.cfg.rules
	last := len(rules) - 1
	for pc := max(0, j.matched); ; {
		slot := j.candidate(pc, later)
		code := &rules[slot]
		if j.dry != nil {
			j.dry.skipped(j, pc, slot, later)
		}
		pc = slot + 1
		if code.Prob != 0 && program.Mix(j.in.Random, uint32(slot)) >= code.Prob {
			j.record(slot, FailedProb)
			continue
		}
		if later && !code.Frag && slot != last {
			j.record(slot, FailedFragment)
			continue
		}
		if code.State.LooksUp() && !j.wasLookedUp(code.Flow) {
			owner, res := j.lookup(code.Flow)
			if res == found {
				j.record(slot, FoundState)
				slot = owner
				code = &rules[slot]
				goto act
			}
			if res != missed {
				j.record(slot, FoundState)
				return j.drop(owner, firewall.Reason(res))
			}
		}
		if code.State == op.StateCheck {
			j.record(slot, FailedState)
			continue
		}
		if !j.matches(slot, code) {
			continue
		}
		if code.Every != 0 {
			if r := j.takeRate(slot, code); r != firewall.ReasonRule {
				j.record(slot, FailedRate)
				if code.RateNext {
					continue
				}
				return j.drop(slot, r)
			}
		}
		if code.Action == op.ActionNAT && code.State != op.StateNone {
			switch {
			case j.in.Hook.Dir == firewall.In: // deny_in, and no state
				j.record(slot, Matched)
				if j.dry == nil {
					j.sh.count(slot, j.p.Len(), j.now)
				}
				return j.drop(slot, firewall.ReasonRule)
			case j.in.Hook.Recv != 0:
				goto act
			}
		}
		if code.State > op.StateCheck {
			if by, r := j.requireState(slot, code); r != firewall.ReasonRule {
				return j.drop(by, r)
			}
			if code.Defer {
				j.record(slot, MatchedDefer)
				continue
			}
		}
	act:
		j.record(slot, Matched)
		if code.Pipe != 0 {
			if r := j.takePipe(code); r != firewall.ReasonRule {
				return j.drop(slot, r)
			}
		}
		if j.dry == nil {
			j.sh.count(slot, j.p.Len(), j.now)
			if code.Log && j.cfg.logging {
				j.log(slot)
			}
		}
		if code.Tag != 0 {
			j.tag(code.Tag)
		}
		pc = slot + 1
		switch code.Action {
		case op.ActionAllow:
			if later && slot == last && j.cfg.prog.Strict {
				return j.drop(slot, firewall.ReasonFragUnknown)
			}
			return firewall.Verdict{Pass: true, Rule: code.Number, Slot: uint16(slot), State: j.use}
		case op.ActionFwd: // packets go nowhere but through the tunnel
			return firewall.Verdict{Pass: true, Rule: code.Number, Slot: uint16(slot), State: j.use}
		case op.ActionNAT: // this engine translates nothing
			if code.Arg&program.NATContinues != 0 {
				continue
			}
			return firewall.Verdict{Pass: true, Rule: code.Number, Slot: uint16(slot), State: j.use}
		case op.ActionCount:
			continue
		case op.ActionSkipTo:
			jumps++
			pc = int(code.Arg)
		case op.ActionCall:
			if depth == len(calls) {
				continue
			}
			jumps++
			calls[depth] = uint16(slot + 1)
			depth++
			pc = int(code.Arg)
		case op.ActionReturn:
			if depth == 0 {
				continue
			}
			jumps++
			depth--
			pc = int(calls[depth])
		default:
			if later && slot == last {
				return j.drop(slot, firewall.ReasonFragUnknown)
			}
			v := j.drop(slot, firewall.ReasonRule)
			j.answer(code, &v)
			return v
		}
		if jumps > program.MaxJumps {
			return j.drop(slot, firewall.ReasonLoop)
		}
	}
}

// candidate returns the next slot at or after pc whose rule may act: its bit vectors match, or it
// looks up states that were not looked up yet. The default rule is always a candidate.
func (j *job) candidate(pc int, later bool) int {
	if pc == j.matched {
		return pc
	}
	end := len(j.cfg.rules) - 1
	if !later {
		end = j.nextLookup(pc)
		if end == pc {
			return pc
		}
	}
	if !j.classified {
		j.cfg.class.classify(j.p, j.in.Hook.Dir, &j.rows)
		j.classified = true
	}
	return j.rows.next(pc, end)
}

// nextLookup returns the first slot at or after pc of a rule that looks up states not looked up
// yet, or the last slot.
func (j *job) nextLookup(pc int) int {
	last := len(j.cfg.rules) - 1
	if j.lookedUp[0]&1 != 0 && len(j.cfg.flows) == 1 {
		return last
	}
	if j.lookFrom <= pc && pc <= j.look &&
		(j.look == last || !j.wasLookedUp(j.cfg.rules[j.look].Flow)) {
		return j.look // names are only ever added to those that were looked up
	}
	j.lookFrom, j.look = pc, last
	if j.wasLookedUp(program.AnyFlow) {
		return last
	}
	i, _ := slices.BinarySearch(j.cfg.lookups, uint16(pc))
	for _, slot := range j.cfg.lookups[i:] {
		if !j.wasLookedUp(j.cfg.rules[slot].Flow) {
			j.look = int(slot)
			break
		}
	}
	return j.look
}

// matches evaluates all conditions of a rule.
func (j *job) matches(slot int, code *program.Rule) bool {
	if slot != j.matched {
		if !j.classified {
			j.cfg.class.classify(j.p, j.in.Hook.Dir, &j.rows)
			j.classified = true
		}
		if !j.rows.has(slot) {
			if j.dry != nil {
				j.record(slot, j.failed(slot))
			}
			return false
		}
	}
	if code.Cond != code.CondEnd && !j.holds(code) {
		if j.dry != nil {
			j.record(slot, j.failedCondition(code))
		}
		return false
	}
	return true
}

// drop returns the verdict of a rule that drops the packet.
func (j *job) drop(slot int, r firewall.Reason) firewall.Verdict {
	return firewall.Verdict{Reason: r, Rule: j.cfg.rules[slot].Number, Slot: uint16(slot),
		State: j.use}
}

// tag adds a tag, unless the packet has it already or carries maxTags.
func (j *job) tag(t uint16) {
	for _, have := range j.tags[:j.ntags] {
		if have == t {
			return
		}
	}
	if j.ntags < maxTags {
		j.tags[j.ntags] = t
		j.ntags++
	}
}

// answer sets the answer that a rule asks for in its verdict.
func (j *job) answer(code *program.Rule, v *firewall.Verdict) {
	if code.Action == op.ActionDeny || !answerable(j.p) {
		return
	}
	v4 := j.p.Version == 4
	switch code.Action {
	case op.ActionReset:
		if j.p.Proto == packet.ProtoTCP {
			v.Answer = firewall.AnswerReset
		}
	case op.ActionReject:
		v.Answer, v.Code = firewall.AnswerUnreach6, 3 // address unreachable
		if v4 {
			v.Answer, v.Code = firewall.AnswerUnreach, 1 // host unreachable
		}
	case op.ActionUnreach:
		if v4 {
			v.Answer, v.Code = firewall.AnswerUnreach, uint8(code.Arg)
		}
	case op.ActionUnreach6:
		if !v4 {
			v.Answer, v.Code = firewall.AnswerUnreach6, uint8(code.Arg)
		}
	}
}

// answerable reports whether a packet may be answered at all (RFC 1122 3.2.2, RFC 4443 2.4). It may
// not be an ICMP error, an RST or a later fragment, and both addresses must be those of single
// hosts.
func answerable(p *packet.Packet) bool {
	if p.Frag&packet.FragLater != 0 || p.ICMPError() || p.Proto == packet.ProtoTCP &&
		p.TCPFlags&packet.FlagRST != 0 {
		return false
	}
	return single(&p.SrcIP, p.Version) && single(&p.DstIP, p.Version)
}

// single reports whether an address can be that of one host: not unspecified, multicast, or the
// broadcast address.
func single(ip *[16]byte, version uint8) bool {
	hi, lo := addrWords(ip)
	if version == 4 {
		a := uint32(lo)
		return a != 0 && a>>28 != 14 && a != 0xffffffff
	}
	return hi>>56 != 0xff && hi|lo != 0
}
