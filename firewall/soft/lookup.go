package soft

import (
	"math/bits"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
)

// Results of a lookup besides a firewall.Reason to drop: every reason is lower.
const (
	found  = 0x100 // there is a state: its rule acts
	missed = 0x101 // none
)

// wasLookedUp reports whether this packet has looked the flow name up already.
func (j *job) wasLookedUp(id uint8) bool {
	if id != program.AnyFlow {
		return j.lookedUp[id>>6]>>(id&63)&1 != 0
	}
	n := 0
	for _, w := range j.lookedUp {
		n += bits.OnesCount64(w)
	}
	return n == len(j.cfg.flows)
}

// lookup looks the packet's state up under a flow name of the Program and returns the slot of the
// rule that made it. The result is found, missed or a reason to drop.
func (j *job) lookup(id uint8) (slot, res int) {
	if id != program.AnyFlow {
		return j.lookupFlow(id)
	}
	for i := range j.cfg.flows {
		if j.wasLookedUp(uint8(i)) {
			continue
		}
		if slot, res = j.lookupFlow(uint8(i)); res != missed {
			return slot, res
		}
	}
	return 0, missed
}

// lookupFlow implements section 4 of the specification for one flow name.
func (j *job) lookupFlow(id uint8) (slot, res int) {
	j.lookedUp[id>>6] |= 1 << (id & 63)
	if !j.hasKey || j.dry != nil && !j.dry.stateful {
		return 0, missed
	}
	j.key.Flow = j.cfg.flows[id]
	t, r := j.sh.find(&j.key, j.hash)
	if r == noRef {
		return 0, missed
	}
	e := &t.entries[r]
	slot = j.cfg.slotOf(e.rule)
	var s flow.State
	e.load(&s)
	if slot < 0 || j.now > s.Deadline(&j.cfg.opts.Timeouts) {
		j.ends(t, r)
		return 0, missed
	}
	side := e.side(j.dir)
	mode := flow.ModeStrict
	if j.cfg.liberal(slot) {
		mode = flow.ModeLiberal
	}
	if j.isErr {
		if res := s.ICMPError(j.quoted, flow.Dir(1-side), j.p.Len(), mode); res.Drops() {
			return slot, reasonOf(res)
		}
		if j.dry == nil {
			e.storeSide(&s.Sides[side], side)
		}
		j.haveState(id, firewall.StateUntouched)
		return slot, found
	}
	if !j.hasSeg {
		j.seg, j.hasSeg = flow.SegmentOf(j.p, j.b), true
	}
	was := s.Phase()
	switch res := s.Step(&j.seg, flow.Dir(side), j.now, mode); res {
	case flow.ResultHit:
		is := s.Phase()
		if j.dry == nil {
			e.storeSide(&s.Sides[side], side)
			if is != was {
				j.sh.phase(t, r, &s, is, j.now)
			}
		} else if !is.HalfOpen() {
			j.wouldPromote(e)
			if is.Over() && !was.Over() {
				j.wouldLeaveTrack(t, r)
			}
		}
		j.haveState(id, firewall.StateHit)
	case flow.ResultUntouched:
		j.haveState(id, firewall.StateUntouched)
	case flow.ResultRecycle:
		j.ends(t, r)
		return 0, missed
	default:
		return slot, reasonOf(res)
	}
	return slot, found
}

// ends removes a state that the packet has found expired or closed.
func (j *job) ends(t *table, r ref) {
	if j.dry != nil {
		e := &t.entries[r]
		j.wouldLeaveTrack(t, r)
		j.wouldPromote(e)
		return
	}
	j.sh.end(t, r, j.now)
}

// haveState records that there is a state under a flow name, and what the packet did to it.
func (j *job) haveState(id uint8, use firewall.StateUse) {
	j.have[id>>6] |= 1 << (id & 63)
	j.use = use
}

// reasonOf returns the reason of a result that drops.
func reasonOf(r flow.Result) int {
	reasons := [...]firewall.Reason{
		flow.ResultBadFlags: firewall.ReasonTCPFlags, flow.ResultBadRst: firewall.ReasonTCPRst,
		flow.ResultBadAck:    firewall.ReasonTCPAck,
		flow.ResultBadWindow: firewall.ReasonTCPWindow, flow.ResultBadTag: firewall.ReasonSCTPTag,
		flow.ResultBadICMP: firewall.ReasonICMPSeq,
	}
	return int(reasons[r])
}

// requireState makes sure that there is a state for a rule that wants one: step 4 of section 3. On
// a drop it returns the reason, and the slot of the rule that drops in place of the given one.
func (j *job) requireState(slot int, code *program.Rule) (int, firewall.Reason) {
	id := code.Flow
	if !j.wasLookedUp(id) {
		if owner, res := j.lookupFlow(id); res != found && res != missed {
			return owner, firewall.Reason(res)
		}
	}
	if j.have[id>>6]>>(id&63)&1 != 0 {
		return slot, firewall.ReasonRule
	}
	if j.answers() {
		if code.Mask != 0 {
			return slot, firewall.ReasonNoKey
		}
		return slot, firewall.ReasonRule
	}
	if r := j.createState(slot, code); r != firewall.ReasonRule {
		return slot, r
	}
	j.haveState(id, firewall.StateNew)
	return slot, firewall.ReasonRule
}

// answers reports whether the packet is an ICMP message that makes no state: neither a query nor an
// error.
func (j *job) answers() bool {
	if j.p.Proto > packet.ProtoICMPv6 || !j.p.IsICMP() || j.isErr {
		return false
	}
	query, answer := j.p.ICMPQueryType()
	return query == 0 || answer
}

// createState implements section 5 of the specification.
func (j *job) createState(slot int, code *program.Rule) firewall.Reason {
	if !j.hasKey || j.isErr {
		return firewall.ReasonNoKey
	}
	if !j.hasSeg {
		j.seg, j.hasSeg = flow.SegmentOf(j.p, j.b), true
	}
	s := &j.state
	if !s.Init(j.p.Proto, &j.seg, j.now) {
		return firewall.ReasonTCPFlags
	}
	if j.dry != nil {
		return j.wouldCreate(slot, code)
	}
	var track *cachedTrack
	if code.Mask != 0 {
		var reason firewall.Reason
		if track, reason = j.track(slot, code); track == nil {
			return reason
		}
	}
	j.key.Flow = j.cfg.flows[code.Flow]
	source := j.sourceHash()
	had, most, turn := j.sh.enterSource(source), uint32(j.sh.engine.opts.MaxPerSource), uint32(0)
	many := most > 0 && had >= j.sh.ring.from
	if many {
		if j.forged(had) {
			j.sh.leaveSource(source)
			return firewall.ReasonHalfOpenSource
		}
		if turn = j.sh.ring.next(source); had >= most {
			j.evictOfSource(source, turn)
		}
	}
	phase := s.Phase()
	j.sh.successor = track
	t, r, reason := j.sh.reserve(phase.HalfOpen(), j.hash, j.now)
	counted := j.sh.successor == nil // in no track, or in place of the evicted state
	j.sh.successor = nil
	if r == noRef {
		j.sh.leaveSource(source)
		return reason
	}
	if !counted && !j.acquire(track, slot, code) { // another worker was faster
		j.sh.counted(-1)
		j.sh.leaveSource(source)
		return firewall.ReasonLimit
	}
	e := t.put(r, &j.key, j.hash, j.now)
	j.sh.live[j.key.Proto]++
	e.rule, e.track = j.cfg.ids[slot], noTrack
	if track != nil {
		e.track, t.eras[r] = track.track, track.era
	}
	e.id |= uint64(j.dir) & infoHigh // without a branch: it is as good as random
	if j.in.Hook.Dir == firewall.Out {
		e.id |= infoOut
	}
	if s.Loose {
		e.id |= infoLoose
	}
	e.id |= infoCounted
	if many && t == &j.sh.halfOpen {
		*j.sh.ring.slot(source, turn) = int32(r) + 1
	}
	e.storeSide(&s.Sides[0], 0)
	if !phase.HalfOpen() {
		j.sh.phase(t, r, s, phase, j.now)
	} else {
		j.sh.schedule(t, r, s, j.now)
	}
	j.sh.started(j, slot)
	return firewall.ReasonRule
}
