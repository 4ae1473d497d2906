package soft

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// Adopt makes states for flows that exist already and returns how many it made. It reads only From,
// To, Link, Key (of a rule in force) and FlowName. The new states count as answered. Those of TCP
// are loose, since their windows are unknown. now is the engine's time in ns. An existing state
// stays as it is.
func (e *Engine) Adopt(states []firewall.State, now time.Duration) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	made := 0
	for i := range states {
		ok, err := e.adoptLocked(&states[i], now)
		if err != nil {
			return made, err
		}
		if ok {
			made++
		}
	}
	return made, nil
}

func (e *Engine) adoptLocked(s *firewall.State, now time.Duration) (made bool, err error) {
	slot := -1
	for i := range e.cfg.rules {
		if e.cfg.rules[i].Key == s.Key {
			slot = i
		}
	}
	if slot < 0 {
		return false, fmt.Errorf("soft: adopt %s -> %s: rule %d is not in force", s.From, s.To,
			s.Rule)
	}
	id, ok := e.flows[s.FlowName]
	if !ok {
		return false, fmt.Errorf("soft: adopt %s -> %s: no rule uses the flow name %q", s.From,
			s.To, s.FlowName)
	}
	k, from := flow.KeyBetween(s.Proto, s.From, s.To, s.Link)
	k.Flow = id
	h := hash(&k, &e.seed)
	sh := e.shards[e.shardOf(h)]
	st := flow.State{Proto: s.Proto, Loose: s.Proto == packet.ProtoTCP}
	for i := range st.Sides {
		st.Sides[i] = flow.Side{Last: now, Flags: flow.SideSeen}
	}
	st.Sides[0].Flags |= flow.SideProved
	sh.hold()
	defer sh.release()
	if _, there := sh.find(&k, h); there != noRef {
		return false, nil
	}
	t, r, reason := sh.reserve(st.HalfOpen(), h, now)
	if r == noRef {
		return false, fmt.Errorf("soft: adopt %s -> %s: %s", s.From, s.To, reason)
	}
	x := t.put(r, &k, h, now)
	sh.live[k.Proto]++
	x.rule, x.track = e.cfg.ids[slot], noTrack
	if st.Loose {
		x.id |= infoLoose
	}
	if from == flow.EndHigh {
		x.id |= infoHigh
	}
	x.storeSide(&st.Sides[0], 0)
	x.storeSide(&st.Sides[1], 1)
	sh.schedule(t, r, &st, now)
	sh.moves++
	return true, nil
}
