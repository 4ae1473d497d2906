package soft

import (
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule/op"
)

// Outcome is the result of trying a rule.
type Outcome uint8

// The outcomes.
const (
	Matched      Outcome = iota // the rule acted
	MatchedDefer                // the rule made a state and deferred its action
	// the rule looked states up and found one: the rule of that state is next
	FoundState
	FailedState    // check-state found no state
	FailedProb     // prob did not let it match
	FailedFragment // only rules with frag are tried for a later fragment
	FailedSrc      // source address
	FailedDst      // destination address
	FailedSrcPort  // source port
	FailedDstPort  // destination port
	FailedProto    // protocol
	FailedFlags    // TCP flags
	FailedICMP     // ICMP type
	FailedHook     // direction, or whether the packet is a fragment
	FailedOption   // another condition
	FailedIface    // receive or transmit interface
	FailedRoute    // verrevpath, versrcreach, antispoof
	// another field of a header: length, TTL, TOS, id, options, sequence numbers
	FailedHeader
	FailedTag  // tag
	FailedRate // limit-rate: more than the rule lets match
)

// String returns a few words for people.
func (o Outcome) String() string {
	words := [...]string{"matched", "matched, action deferred", "found a state", "no state", "prob",
		"not the first fragment", "source address",
		"destination address", "source port", "destination port", "protocol", "TCP flags",
		"ICMP type", "direction or fragment", "option",
		"interface", "route back", "header field", "tag", "rate"}
	if int(o) < len(words) {
		return words[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Try is one rule that was tried for a packet.
type Try struct {
	Slot    uint16
	Number  uint16
	Outcome Outcome
}

// Explanation is a verdict with everything that led to it.
type Explanation struct {
	Verdict firewall.Verdict
	Tries   []Try // in the order of trying
}

// dryRun collects what happens to a packet whose evaluation must change nothing.
type dryRun struct {
	tries    []Try
	stateful bool                    // states are looked up
	ended    []uint32                // tracks of states that would have been ended
	rates    map[rateKey]flow.Bucket // buckets of which the packet would have taken
	// how many more half-open states the packet's source would have
	halfOpen int
}

// record writes an outcome down if this is a dry run.
func (j *job) record(slot int, o Outcome) {
	if j.dry != nil {
		j.dry.tries = append(j.dry.tries,
			Try{Slot: uint16(slot), Number: j.cfg.rules[slot].Number, Outcome: o})
	}
}

// skipped writes down the rules between two slots, which the bit vectors have ruled out.
func (d *dryRun) skipped(j *job, from, to int, later bool) {
	for slot := from; slot < to; slot++ {
		o := FailedFragment
		if !later || j.cfg.rules[slot].Frag {
			o = FailedState
			if j.cfg.rules[slot].State != op.StateCheck {
				o = j.failed(slot)
			}
		}
		j.record(slot, o)
	}
}

// failed returns the first part of the packet whose vector lacks the bit of a slot.
func (j *job) failed(slot int) Outcome {
	lacks := func(v []uint64) bool { return v[slot>>6]>>(slot&63)&1 == 0 }
	k := j.cfg.class
	proto, hook := uint32(j.p.Proto), uint32(j.in.Hook.Dir)
	if j.p.Version == 6 {
		proto += 256
	}
	later := j.p.Frag&packet.FragLater != 0
	if later {
		hook += 2
	}
	switch {
	case lacks(k.vector(program.DimHook, uint32(k.Hook[hook]))):
		return FailedHook
	case lacks(k.vector(program.DimProto, uint32(k.Proto[proto]))):
		return FailedProto
	case lacks(j.rows[rowSrc]):
		return FailedSrc
	case lacks(j.rows[rowDst]):
		return FailedDst
	case lacks(j.rows[rowSrcPort]):
		return FailedSrcPort
	case lacks(j.rows[rowDstPort]):
		return FailedDstPort
	case lacks(j.rows[rowFlags]):
		if j.p.IsICMP() {
			return FailedICMP
		}
		return FailedFlags
	}
	// The packet lacks what the rule asks for.
	switch kindOf(int(proto), later) {
	case kindICMP, kindICMP6:
		return FailedDstPort
	}
	return FailedOption
}

// opOutcomes maps each condition to the outcome of a rule that fails by it.
var opOutcomes = map[op.Cond]Outcome{
	op.CondSrcIn: FailedSrc, op.CondSrcMe: FailedSrc, op.CondSrcTable: FailedSrc,
	op.CondDstIn: FailedDst, op.CondDstMe: FailedDst, op.CondDstTable: FailedDst,
	op.CondSrcPort: FailedSrcPort, op.CondDstPort: FailedDstPort, op.CondProto: FailedProto,
	op.CondVersion: FailedProto,
	op.CondIn:      FailedHook, op.CondOut: FailedHook, op.CondFrag: FailedHook,
	op.CondRecv: FailedIface, op.CondXmit: FailedIface, op.CondVia: FailedIface,
	op.CondRecvGlob: FailedIface, op.CondXmitGlob: FailedIface, op.CondViaGlob: FailedIface,
	op.CondRecvAny: FailedIface, op.CondXmitAny: FailedIface, op.CondViaAny: FailedIface,
	op.CondRecvAddr: FailedIface, op.CondXmitAddr: FailedIface, op.CondViaAddr: FailedIface,
	op.CondFlags: FailedFlags, op.CondEstab: FailedFlags, op.CondICMPType: FailedICMP,
	op.CondICMP6Type: FailedICMP,
	op.CondSeq:       FailedHeader, op.CondAck: FailedHeader, op.CondWin: FailedHeader,
	op.CondTTL: FailedHeader, op.CondLen: FailedHeader,
	op.CondID: FailedHeader, op.CondIPOptions: FailedHeader, op.CondTOS: FailedHeader,
	op.CondDSCP: FailedHeader, op.CondPrecedence: FailedHeader,
	op.CondTagged: FailedTag, op.CondVerRevPath: FailedRoute, op.CondVerSrcReach: FailedRoute,
	op.CondAntiSpoof: FailedRoute,
}

// failedCondition says what the first clause of a rule is about that is false; an or-block is about
// its first condition.
func (j *job) failedCondition(code *program.Rule) Outcome {
	for i := code.Cond; i < code.CondEnd; i++ {
		first, holds := j.cfg.prog.Conds[i].Op, false
		for {
			c := &j.cfg.prog.Conds[i]
			holds = holds || j.cond(c) != (c.Flags&program.FlagNot != 0)
			if c.Flags&program.FlagOr == 0 || i+1 == code.CondEnd {
				break
			}
			i++
		}
		if o, known := opOutcomes[first]; !holds && known {
			return o
		}
	}
	return FailedOption
}

// wouldCreate reports whether a state could be made, as far as that is known without making it.
func (j *job) wouldCreate(slot int, code *program.Rule) firewall.Reason {
	switch {
	case code.Mask != 0 && j.reached(slot, code):
		return firewall.ReasonLimit
	case j.wouldBeForged():
		return firewall.ReasonHalfOpenSource
	case j.sh.full():
		return firewall.ReasonStatesFull
	}
	if j.state.HalfOpen() {
		j.dry.halfOpen++
	}
	return firewall.ReasonRule
}

// Explain returns the verdict that Evaluate would return, and why. It changes nothing: no state, no
// counter. It may be called from any goroutine.
func (e *Engine) Explain(in *firewall.Input, pkt []byte) Explanation {
	var p packet.Packet
	p.Decode(pkt)
	return e.dry(in, &p, pkt, true)
}

// Check answers a question of policy without a packet: which verdict would the first packet of a
// new flow from one end to the other get? For TCP that is a SYN; for ICMP and ICMPv6 an echo
// request with the source port as identifier. States are not looked up, and nothing changes.
func (e *Engine) Check(in *firewall.Input, proto packet.Proto, from,
	to netip.AddrPort) Explanation {
	b, err := firstPacket(proto, from, to)
	if err != nil { // ends of different families
		return Explanation{Verdict: firewall.Verdict{
			Reason: firewall.ReasonDecode + firewall.Reason(packet.ReasonVersion)}}
	}
	var p packet.Packet
	p.Decode(b)
	return e.dry(in, &p, nil, false)
}

// firstPacket makes the packet that Check asks about, with 20 bytes behind the IP header.
func firstPacket(proto packet.Proto, from, to netip.AddrPort) ([]byte, error) {
	src, dst := from.Addr().Unmap(), to.Addr().Unmap()
	var ip build.Layer = build.IPv4{Src: src, Dst: dst}
	if src.Is6() {
		ip = build.IPv6{Src: src, Dst: dst}
	}
	layer, rest := build.Layer(build.Upper(proto)), 20
	switch proto {
	case packet.ProtoTCP:
		layer, rest = build.TCP{SrcPort: from.Port(), DstPort: to.Port(), Flags: packet.FlagSYN}, 0
	case packet.ProtoUDP:
		layer, rest = build.UDP{SrcPort: from.Port(), DstPort: to.Port()}, 12
	case packet.ProtoUDPLite:
		layer, rest = build.UDPLite{SrcPort: from.Port(), DstPort: to.Port()}, 12
	case packet.ProtoSCTP:
		layer, rest = build.SCTP{SrcPort: from.Port(), DstPort: to.Port()}, 8
	case packet.ProtoICMP:
		layer, rest = build.ICMP{Type: 8, Rest: uint32(from.Port()) << 16}, 12
	case packet.ProtoICMPv6:
		layer, rest = build.ICMPv6{Type: 128, Rest: uint32(from.Port()) << 16}, 12
	}
	return build.Packet(ip, layer, make(build.Data, rest))
}

// dry evaluates a packet in a dry run.
func (e *Engine) dry(in *firewall.Input, p *packet.Packet, pkt []byte, stateful bool) Explanation {
	j := &job{in: in, p: p, b: pkt, now: in.Now, dry: &dryRun{stateful: stateful}}
	j.prepare(e)
	s := e.shards[0]
	if j.hasKey {
		s = e.shards[e.shardOf(j.hash)]
	}
	s.hold()
	defer s.release()
	j.sh, j.cfg = s, s.cfg
	v := j.evaluate()
	return Explanation{Verdict: v, Tries: j.dry.tries}
}
