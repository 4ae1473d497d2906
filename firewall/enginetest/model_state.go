package enginetest

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// lookResult is the result of a lookup.
type lookResult int

const (
	lookMiss lookResult = iota
	lookHit
	lookDrop
)

// lookUp looks the packet's state up under a flow name, or under every name, once per packet and
// name. slot is that of the rule that made the state.
func (j *job) lookUp(name string, any bool) (slot int, result lookResult, reason firewall.Reason) {
	names := []string{name}
	if any {
		names = j.flows
	}
	for _, n := range names {
		if j.asked[n] {
			continue
		}
		if slot, result, reason = j.lookUpFlow(n); result != lookMiss {
			return slot, result, reason
		}
	}
	return 0, lookMiss, 0
}

// lookUpFlow is section 4 of the page.
func (j *job) lookUpFlow(name string) (slot int, result lookResult, reason firewall.Reason) {
	j.asked[name] = true
	s := j.find(name)
	if s == nil {
		return 0, lookMiss, 0
	}
	if j.expired(s, j.now) {
		j.remove(s)
		return 0, lookMiss, 0
	}
	slot = j.slot(s.rule)
	side := int(j.from ^ s.from)
	mode := flow.ModeStrict
	if j.Options.Liberal || j.rules[slot].Liberal {
		mode = flow.ModeLiberal
	}
	var r flow.Result
	if j.isErr {
		r = s.ICMPError(j.inner.Seq, flow.Dir(1-side), j.p.Len(), mode)
	} else {
		seg := flow.SegmentOf(&j.p, j.b)
		r = s.Step(&seg, flow.Dir(side), j.now, mode)
	}
	if p := s.Phase(); p == flow.PhaseClosed || p == flow.PhaseReset {
		s.tracked, s.reassigned = false, false
	}
	if r == flow.ResultHit && s.reassigned && !s.HalfOpen() && !j.countAgain(s, slot) {
		j.seen.note(ofTrack, 0, "no space when proved")
		j.remove(s)
	}
	switch r {
	case flow.ResultHit:
		j.use = firewall.StateHit
	case flow.ResultUntouched:
		j.use = firewall.StateUntouched
		if j.isErr {
			j.seen.note(ofError, int(j.p.Version)<<8|int(j.p.ICMPType()), "of a state")
		}
	case flow.ResultRecycle:
		j.remove(s)
		return 0, lookMiss, 0
	case flow.ResultBadFlags:
		return slot, lookDrop, firewall.ReasonTCPFlags
	case flow.ResultBadRst:
		return slot, lookDrop, firewall.ReasonTCPRst
	case flow.ResultBadAck:
		return slot, lookDrop, firewall.ReasonTCPAck
	case flow.ResultBadWindow:
		return slot, lookDrop, firewall.ReasonTCPWindow
	case flow.ResultBadTag:
		return slot, lookDrop, firewall.ReasonSCTPTag
	case flow.ResultBadICMP:
		return slot, lookDrop, firewall.ReasonICMPSeq
	}
	j.have[name] = true
	return slot, lookHit, 0
}

// find returns the state of the packet's flow under a flow name.
func (j *job) find(name string) *modelState {
	if !j.hasKey {
		return nil
	}
	for _, s := range j.states {
		if s.key == j.key && s.name == name {
			return s
		}
	}
	return nil
}

func (j *job) remove(gone *modelState) {
	j.removeStates(func(s *modelState) bool { return s == gone })
}

// requireState is step 4 of section 3. It returns the slot of the rule that drops the packet and
// the reason, ReasonRule for none.
func (j *job) requireState(slot int, r *rule.Rule) (int, firewall.Reason) {
	name := flowName(r)
	if !j.asked[name] {
		if owner, result, reason := j.lookUpFlow(name); result == lookDrop {
			return owner, reason
		}
	}
	if j.have[name] {
		return slot, firewall.ReasonRule
	}
	if j.p.IsICMP() && !j.isErr && !j.asks() {
		if r.State.Mask != 0 {
			return slot, firewall.ReasonNoKey
		}
		return slot, firewall.ReasonRule
	}
	if reason := j.createState(slot, r, name); reason != firewall.ReasonRule {
		return slot, reason
	}
	j.have[name] = true
	j.use = firewall.StateNew
	return slot, firewall.ReasonRule
}

// asks reports whether the packet is an ICMP query.
func (j *job) asks() bool {
	if j.p.Version == 6 {
		return slices.Contains([]uint8{128, 139}, j.p.ICMPType())
	}
	return slices.Contains([]uint8{8, 13, 15, 17}, j.p.ICMPType())
}

// createState is section 5 of the page. The model has space for any number of states.
func (j *job) createState(slot int, r *rule.Rule, name string) firewall.Reason {
	if !j.hasKey || j.isErr {
		return firewall.ReasonNoKey
	}
	seg := flow.SegmentOf(&j.p, j.b)
	st, ok := flow.New(j.p.Proto, &seg, j.now)
	if !ok {
		return firewall.ReasonTCPFlags
	}
	s := &modelState{State: st, key: j.key, name: name, from: j.from, rule: j.keys[slot],
		mask: r.State.Mask, created: j.now}
	if s.mask != 0 {
		n := uint32(0)
		for _, other := range j.states {
			if other.tracked && other.rule == s.rule && other.Proto == s.Proto &&
				masked(other) == masked(s) {
				n++
			}
		}
		if n >= r.State.Limit {
			return firewall.ReasonLimit
		}
		if n == 0 && !j.trackSpace() {
			return firewall.ReasonTracksFull
		}
		p := s.Phase()
		s.tracked = p != flow.PhaseClosed && p != flow.PhaseReset
	}
	if most := j.Options.MaxPerSource; most > 0 {
		n := j.halfOpen(sourceOf(s))
		if n >= most/2 && j.in.Hook.Dir == firewall.In && j.me(&rule.Test{}, j.p.Src()) {
			return firewall.ReasonHalfOpenSource
		}
		if n >= most && j.chosen != nil {
			// an engine that finds none of this source evicts as if its table were full
			j.evict(sourceOf(s), evictable)
		}
	}
	if j.evictable() >= j.Options.MaxHalfOpen && j.chosen != nil {
		if j.refused.Reason == firewall.ReasonHalfOpenFull && j.refused.Slot == uint16(slot) {
			return firewall.ReasonHalfOpenFull
		}
		j.evict(netip.Addr{}, evictable)
		j.evict(netip.Addr{}, evictable) // where an engine had one too many
	}
	j.states = append(j.states, s)
	j.seen.state(r, "made")
	return firewall.ReasonRule
}

// evict ends the state that makes space for another, which is the engine's choice: of those that
// the engine lost meanwhile, one of this source if there is one. Those that the packet may yet find
// expired come last, since the engine may have lost them to the lookup of a later rule.
func (j *job) evict(source netip.Addr, may func(*modelState) bool) {
	var best *modelState
	rank := 0
	for _, s := range j.states {
		if !may(s) || !j.chosen(s) {
			continue
		}
		r := 2
		switch {
		case s.key == j.key && j.expired(s, j.now):
			r = 1
		case sourceOf(s) == source:
			r = 3
		}
		if r > rank {
			best, rank = s, r
		}
	}
	if best != nil {
		j.remove(best)
	}
}

// evictable says that a state may give way: it is half-open, or was until it was closed.
func evictable(s *modelState) bool { return s.HalfOpen() || s.Phase().Over() }

func (j *job) evictable() (n int) {
	for _, s := range j.states {
		if evictable(s) {
			n++
		}
	}
	return n
}

// sourceOf returns the source that a state counts for: that of the address of its originator.
func sourceOf(s *modelState) netip.Addr {
	from, _ := s.key.Ends(s.from)
	return source(from.Addr(), s.key.Link())
}

// source returns what an address counts for: for IPv4 itself, for IPv6 its /64, for link-local IPv6
// that of its link.
func source(a netip.Addr, link uint32) netip.Addr {
	if a.Is4() {
		return a
	}
	local := a.IsLinkLocalUnicast()
	if a = netip.PrefixFrom(a, 64).Masked().Addr(); local {
		a = a.WithZone(strconv.Itoa(int(link)))
	}
	return a
}

// halfOpen counts the half-open states of a source, of all for the zero one.
func (j *job) halfOpen(source netip.Addr) int {
	n := 0
	for _, s := range j.states {
		if s.HalfOpen() && (source == netip.Addr{} || sourceOf(s) == source) {
			n++
		}
	}
	return n
}

// masked returns the parts of a state's tuple that its rule counts by.
func masked(s *modelState) (m struct{ from, to netip.AddrPort }) {
	from, to := s.key.Ends(s.from)
	none := netip.Addr{}
	m.from, m.to = netip.AddrPortFrom(none, 0), netip.AddrPortFrom(none, 0)
	if s.mask&op.LimitSrcAddr != 0 {
		m.from = netip.AddrPortFrom(sourceOf(s), 0)
	}
	if s.mask&op.LimitSrcPort != 0 {
		m.from = netip.AddrPortFrom(m.from.Addr(), from.Port())
	}
	if s.mask&op.LimitDstAddr != 0 {
		m.to = netip.AddrPortFrom(to.Addr(), 0)
	}
	if s.mask&op.LimitDstPort != 0 {
		m.to = netip.AddrPortFrom(m.to.Addr(), to.Port())
	}
	return m
}

// fragment describes the datagram that the packet is a part of.
func (j *job) fragment() modelFrag {
	f := modelFrag{src: j.p.Src(), dst: j.p.Dst(), id: j.p.IPID, hook: j.in.Hook}
	if j.p.Version == 4 {
		f.proto = j.p.Proto
	}
	return f
}

func (f *modelFrag) same(g *modelFrag) bool {
	return f.src == g.src && f.dst == g.dst && f.id == g.id && f.hook == g.hook &&
		f.proto == g.proto
}

// recordFragment and laterFragment are section 6 of the page.
func (j *job) recordFragment(v firewall.Verdict) {
	f := j.fragment()
	f.time, f.verdict = j.now, v
	f.end = flow.FragmentEnd(&j.p, j.b)
	for i := range j.frags {
		if j.frags[i].same(&f) {
			j.frags[i] = f
			return
		}
	}
	j.frags = append(j.frags, f)
}

func (j *job) laterFragment() firewall.Verdict {
	f := j.fragment()
	for i := range j.frags {
		known := &j.frags[i]
		if !known.same(&f) || j.now-known.time > 30e9 {
			continue
		}
		if uint32(j.p.FragOff()) < known.end {
			known.poisoned = true
		}
		if known.poisoned {
			return firewall.Verdict{Reason: firewall.ReasonFragOverlap}
		}
		v := known.verdict
		if v.Pass && v.Rule != 0 && !j.carries(j.rules[v.Slot]) {
			return j.drop(int(v.Slot), firewall.ReasonPipe)
		}
		if v.Rule != 0 {
			c := &j.counts[v.Slot]
			c.Packets++
			c.Bytes += uint64(j.p.Len())
			c.Last = j.now
		}
		return firewall.Verdict{Pass: v.Pass, Reason: firewall.ReasonFragFirst, Rule: v.Rule,
			Slot: v.Slot}
	}
	return j.walk()
}

// asksFragments reports whether a rule may be asked about a later fragment whose first is unknown.
func asksFragments(r *rule.Rule) bool {
	for _, c := range r.Clauses() {
		for _, t := range c {
			if t.Op == op.CondFrag && !t.Not {
				return true
			}
		}
	}
	return false
}
