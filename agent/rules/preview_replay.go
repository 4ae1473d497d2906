package rules

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

const (
	// mostFlows is how many flows that passed are decided again, and how many refused ones: a flood
	// of refused packets takes no space of the others.
	mostFlows = 10_000
	// replayTime bounds what the decisions of a replay cost.
	replayTime = 2 * time.Second
	// mostChanges is how many changed flows are listed.
	mostChanges = 50
)

// flowSeen is a flow of the journal at one hook, or a packet that belongs to none.
type flowSeen struct {
	flowKey
	srcName, dstName string // which may have changed meanwhile
}

type flowKey struct {
	hook     firewall.Hook
	proto    packet.Proto
	flags    uint8 // of a TCP packet that does not begin a flow
	src, dst netip.AddrPort
}

// flowsOf collects what the events are about, each flow once.
type flowsOf struct {
	byName         map[string]uint32 // index
	seen           map[flowKey]bool
	passed, denied []flowSeen
	from           time.Time
	skipped, left  int
}

// add adds the flow of an event.
func (f *flowsOf) add(e *observe.Event) {
	if f.from.IsZero() {
		f.from = e.At
	}
	denied := e.Refused()
	recv, known := f.index(e.Recv)
	xmit, knownToo := f.index(e.Xmit)
	if !known || !knownToo || !e.Src.IsValid() || !e.Dst.IsValid() ||
		denied && e.Verdict.Reason != firewall.ReasonRule || e.Kind == 0 ||
		e.Kind == firewall.EventLog {
		f.skipped++
		return
	}
	one := flowSeen{flowKey{hook: firewall.Hook{Dir: e.Hook.Dir, Recv: recv, Xmit: xmit},
		proto: e.Proto, src: e.Src, dst: e.Dst}, e.From, e.To}
	if denied && e.Proto == packet.ProtoTCP && e.TCPFlags != packet.FlagSYN {
		one.flags = e.TCPFlags
	}
	if f.seen[one.flowKey] {
		return
	}
	to := &f.passed
	if denied {
		to = &f.denied
	}
	if len(*to) == mostFlows {
		f.left++
		return
	}
	f.seen[one.flowKey] = true
	*to = append(*to, one)
}

func (f *flowsOf) index(name string) (uint32, bool) {
	index, known := f.byName[name]
	return index, known || name == ""
}

// replay decides the flows of the events by the rules in force and by the changed ones. Both see
// the first packet of each without any state. most bounds the time that the decisions take.
func (p *preview) replay(ctx context.Context, events iter.Seq[observe.Event],
	most time.Duration) *api.Replay {
	f := flowsOf{byName: map[string]uint32{}, seen: map[flowKey]bool{}}
	for _, i := range p.ifs {
		f.byName[i.Name] = i.Index
	}
	for e := range events {
		f.add(&e)
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	a := &api.Replay{From: f.from, Skipped: f.skipped, LeftOut: f.left,
		Changes: []api.ChangedFlow{}}
	changed := map[api.ChangedFlow]int{}
	all := slices.Concat(f.passed, f.denied)
	for n, one := range all {
		if ctx.Err() != nil {
			a.LeftOut += len(all) - n
			break
		}
		now, then := p.now.decide(&one), p.then.decide(&one)
		a.Flows++
		switch {
		case now == then:
			a.Same++
			continue
		case now.Passed && !then.Passed:
			a.Refused++
		case then.Passed && !now.Passed:
			a.Passed++
		default:
			a.Other++
		}
		changed[api.ChangedFlow{Proto: one.proto.String(), Src: one.src.Addr().String(),
			SrcName: one.srcName, Dst: one.dst.Addr().String(), DstName: one.dstName,
			Port: one.dst.Port(), Now: now, Then: then}]++
	}
	for c, flows := range changed {
		c.Flows = flows
		a.Changes = append(a.Changes, c)
	}
	slices.SortFunc(a.Changes, func(x, y api.ChangedFlow) int {
		weight := func(c api.ChangedFlow) int {
			if c.Now.Passed == c.Then.Passed {
				return 1
			}
			return 0
		}
		return cmp.Or(weight(x)-weight(y), y.Flows-x.Flows, cmp.Compare(x.Src, y.Src),
			cmp.Compare(x.Dst, y.Dst), cmp.Compare(x.Port, y.Port))
	})
	a.Changes = a.Changes[:min(len(a.Changes), mostChanges)]
	return a
}

// decide returns the verdict about the first packet of a flow, or about a packet that begins none.
func (s *side) decide(f *flowSeen) api.Verdict {
	in := &firewall.Input{Hook: f.hook}
	x := s.engine.Check(in, f.proto, f.src, f.dst)
	if f.flags != 0 {
		if b, err := segment(f); err == nil {
			x = s.engine.Explain(in, b)
		}
	}
	d := api.Verdict{Passed: x.Verdict.Pass, Rule: x.Verdict.Rule,
		Reason: x.Verdict.Reason.String()}
	if d.Rule != 0 {
		d.Text = s.program.Texts[x.Verdict.Slot]
	}
	return d
}

// segment makes a TCP packet with the flags that were seen.
func segment(f *flowSeen) ([]byte, error) {
	var ip build.Layer = build.IPv4{Src: f.src.Addr(), Dst: f.dst.Addr()}
	if f.src.Addr().Is6() {
		ip = build.IPv6{Src: f.src.Addr(), Dst: f.dst.Addr()}
	}
	return build.Packet(ip, build.TCP{SrcPort: f.src.Port(), DstPort: f.dst.Port(), Flags: f.flags})
}
