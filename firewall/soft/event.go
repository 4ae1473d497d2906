package soft

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
)

// logBudget counts the log events of a rule against its logamount.
type logBudget struct{ emitted atomic.Uint32 }

// take counts one event, and reports whether it is one of the first `most`. The count stops there:
// otherwise it would be 0 again after 2^32 matches.
func (b *logBudget) take(most uint32) bool {
	for {
		n := b.emitted.Load()
		if n >= most {
			return false
		}
		if b.emitted.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// logsLocked prepares the budgets of a new config: rules that remain keep what they have used.
func (e *Engine) logsLocked(c *config) {
	c.logs = make([]logBudget, len(c.rules))
	for i := range c.rules {
		c.logging = c.logging || c.rules[i].Log && e.onEvent != nil
		if e.cfg == nil {
			continue
		}
		if old := e.cfg.slotOf(c.ids[i]); old >= 0 {
			c.logs[i].emitted.Store(e.cfg.logs[old].emitted.Load())
		}
	}
}

// event returns an event about the packet of the job.
func (j *job) event(kind firewall.EventKind) firewall.Event {
	p := j.p
	ev := firewall.Event{Kind: kind, Time: j.now, Hook: j.in.Hook, Proto: p.Proto,
		TCPFlags: p.TCPFlags, Length: p.Len()}
	src, dst := p.SrcPort(), p.DstPort()
	if query, _ := p.ICMPQuery(); query {
		src, dst = p.ICMPID(), p.ICMPID()
	}
	ev.Src, ev.Dst = netip.AddrPortFrom(p.Src(), src), netip.AddrPortFrom(p.Dst(), dst)
	return ev
}

// log emits an event for a match of a rule with log, up to the rule's logamount.
func (j *job) log(slot int) {
	code := &j.cfg.rules[slot]
	if code.LogMax != 0 && !j.cfg.logs[slot].take(code.LogMax) {
		return
	}
	ev := j.event(firewall.EventLog)
	ev.Verdict = firewall.Verdict{Rule: code.Number, Slot: uint16(slot), State: j.use}
	j.sh.engine.onEvent(&ev)
}

// dropped emits the event of a drop. A refused state is an event of its own kind.
func (j *job) dropped(v firewall.Verdict) {
	kind := firewall.EventDrop
	switch v.Reason {
	case firewall.ReasonLimit, firewall.ReasonStatesFull, firewall.ReasonHalfOpenFull,
		firewall.ReasonHalfOpenSource, firewall.ReasonTracksFull, firewall.ReasonNoKey:
		kind = firewall.EventRefuse
	}
	ev := j.event(kind)
	ev.Verdict = v
	j.sh.engine.onEvent(&ev)
}

// started emits the event of a new state.
func (s *shard) started(j *job, slot int) {
	if s.engine.onEvent == nil {
		return
	}
	ev := j.event(firewall.EventStart)
	ev.Verdict = firewall.Verdict{Pass: true, Rule: j.cfg.rules[slot].Number, Slot: uint16(slot),
		State: firewall.StateNew}
	s.engine.onEvent(&ev)
}

// ended emits the event of a state's end.
func (s *shard) ended(t *table, r ref, now time.Duration) {
	st, ok := s.show(t, r)
	if !ok { // its rule is gone, and its number with it
		st = s.shown(t, r)
	}
	ev := firewall.Event{Kind: firewall.EventEnd, Time: now, Proto: st.Proto, Src: st.From,
		Dst:     st.To,
		Packets: st.Packets, Bytes: st.Bytes, Duration: st.Last - st.Created}
	if t.entries[r].id&infoOut != 0 {
		ev.Hook.Dir = firewall.Out
	}
	ev.Verdict = firewall.Verdict{Pass: true, Rule: st.Rule, State: firewall.StateHit}
	s.engine.onEvent(&ev)
}

// show returns a state for people and tools. ok is false if its rule is gone.
func (s *shard) show(t *table, r ref) (st firewall.State, ok bool) {
	e := &t.entries[r]
	slot := s.cfg.slotOf(e.rule)
	if slot < 0 {
		return st, false
	}
	st = s.shown(t, r)
	code := &s.cfg.rules[slot]
	st.Rule, st.Key = code.Number, code.Key
	st.FlowName = s.cfg.prog.Flows[code.Flow]
	return st, true
}

// shown returns the parts of a state that do not depend on its rule.
func (s *shard) shown(t *table, r ref) firewall.State {
	e := &t.entries[r]
	var fs flow.State
	e.load(&fs)
	k := e.key()
	st := firewall.State{Proto: e.proto(), Phase: fs.Phase(), Created: t.created[r],
		Last: fs.Last(), Deadline: fs.Deadline(&s.cfg.opts.Timeouts)}
	st.From, st.To = k.DisplayEnds(e.from())
	st.Query, st.Link = k.ICMPQueryType(e.from()), k.Link()
	for i := range fs.Sides {
		st.Packets[i], st.Bytes[i] = fs.Sides[i].Packets, fs.Sides[i].Bytes
	}
	return st
}
