package rules

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Explainer explains verdicts of the rules in force.
type Explainer struct {
	Manager    *Manager
	Options    firewall.Options // of the engines
	Interfaces func() []firewall.Interface
	Labels     func() map[string][]rule.TableEntry // the tables of labels
	Guards     func(name string) bool              // an interface is guarded
	States     func() iter.Seq2[firewall.State, error]
}

// Why explains what the node would do with a packet: with its rules, tables, interfaces, routes and
// states.
func (x *Explainer) Why(r api.Why) (a api.Explanation, err error) {
	q, err := offline.ParseQuestion(r.Packet)
	if err != nil {
		return a, err
	}
	state, err := x.stateOf(q.Packet)
	if err != nil {
		return a, err
	}
	now, p := x.inForce()
	ifs := x.Interfaces()
	e, err := x.engine(p, now.Set, ifs)
	if err != nil {
		return a, err
	}
	defer e.Close()
	if a, err = offline.Explain(e, p, q, ifs, clock.Now()); err != nil {
		return a, err
	}
	if state != nil {
		followState(&a, p, *state)
	} else if a.State {
		err = x.countStates(&a, p, q.Packet)
	}
	return a, err
}

// countStates corrects an explanation that was made without states, and says that the packet would
// make one: the limit of the rule that makes it may be reached.
func (x *Explainer) countStates(a *api.Explanation, p *program.Program, of packet.Packet) error {
	i := slices.IndexFunc(a.Tries, func(t api.Try) bool {
		return p.Rules[t.Index].Mask != 0 && (t.Outcome == soft.Matched.String() ||
			t.Outcome == soft.MatchedDefer.String())
	})
	if i < 0 {
		return nil
	}
	code, n := &p.Rules[a.Tries[i].Index], uint32(0)
	for s, err := range x.States() {
		if err != nil {
			return err
		}
		if s.Key == code.Key && s.Proto == of.Proto && countedWith(code.Mask, s, of) {
			n++
		}
	}
	if n >= code.Limit {
		a.Tries = a.Tries[:i+1]
		a.Passed, a.State, a.Answer, a.Reason = false, false, "", firewall.ReasonLimit.String()
		a.Rule, a.Text = a.Tries[i].Rule, a.Tries[i].Text
	}
	return nil
}

// countedWith reports whether a limit counts a state and the one that a packet would make together.
func countedWith(by op.LimitMask, s firewall.State, of packet.Packet) bool {
	srcPort, dstPort := of.SrcPort(), of.DstPort()
	if query, _ := of.ICMPQueryType(); query != 0 {
		srcPort, dstPort = of.ICMPID(), of.ICMPID()
	}
	src := netip.PrefixFrom(of.Src(), min(of.Src().BitLen(), 64))
	return (by&op.LimitSrcAddr == 0 || src.Contains(s.From.Addr())) &&
		(by&op.LimitDstAddr == 0 || s.To.Addr() == of.Dst()) &&
		(by&op.LimitSrcPort == 0 || s.From.Port() == srcPort) &&
		(by&op.LimitDstPort == 0 || s.To.Port() == dstPort)
}

// inForce returns a copy of the rules in force and their Program; the Program is nil before the
// first rules. Members of tables change under the lock alone, and a Program that is in force never
// does. What asks them makes its engine without the lock: with many members that takes long.
func (x *Explainer) inForce() (now Version, p *program.Program) {
	x.Manager.View(func(v Version, inForce *program.Program) {
		now, p = v, inForce
		now.Set = v.Set.Clone()
	})
	return now, p
}

// Engine makes a user-space engine with these rules and the node's tables, interfaces, routes and
// states, for explanations.
func (x *Explainer) Engine(p *program.Program, set *rule.Ruleset) (*soft.Engine, error) {
	return x.engine(p, set, x.Interfaces())
}

func (x *Explainer) engine(p *program.Program, set *rule.Ruleset, ifs []firewall.Interface) (
	*soft.Engine, error) {
	routes, err := routes.List()
	if err != nil {
		return nil, err
	}
	e, err := offline.Engine(offline.SmallTables(x.Options), p, set, ifs, routes)
	if err != nil {
		return e, err
	}
	for table, members := range x.Labels() {
		if err := e.SetTable(table, members); err != nil {
			return e, err
		}
	}
	return e, nil
}

// stateOf finds the live state that a packet belongs to; nil if there is none.
func (x *Explainer) stateOf(p packet.Packet) (*firewall.State, error) {
	src, dst := netip.AddrPortFrom(p.Src(), p.SrcPort()), netip.AddrPortFrom(p.Dst(), p.DstPort())
	query, answer := p.ICMPQueryType()
	if query != 0 {
		src, dst = netip.AddrPortFrom(p.Src(), p.ICMPID()), netip.AddrPortFrom(p.Dst(), p.ICMPID())
	}
	if answer { // the sender of the query created the state
		src, dst = dst, src
	}
	for s, err := range x.States() {
		if err != nil {
			return nil, err
		}
		if s.Proto != p.Proto || s.Query != query {
			continue
		}
		if s.From == src && s.To == dst || query == 0 && s.From == dst && s.To == src {
			return &s, nil
		}
	}
	return nil, nil
}

// followState corrects an explanation that was made without states: the first rule tried that looks
// up states of this flow name finds this one, and the state's rule acts. Sequence numbers are not
// compared: a question does not carry the right ones.
func followState(a *api.Explanation, p *program.Program, s firewall.State) {
	index := -1
	for i := range p.Rules {
		if p.Rules[i].Key == s.Key {
			index = i
		}
	}
	if index < 0 {
		return
	}
	var pass bool
	switch p.Rules[index].Action {
	case op.ActionAllow, op.ActionFwd:
		pass = true
	case op.ActionNAT:
		if pass = p.Rules[index].Arg&program.NATContinues == 0; !pass {
			return
		}
	case op.ActionDeny, op.ActionReject, op.ActionReset, op.ActionUnreach, op.ActionUnreach6:
	default:
		return // evaluation continues after it; the explanation without the state shows how
	}
	for i, t := range a.Tries {
		code := &p.Rules[t.Index]
		if !code.State.LooksUp() ||
			code.Flow != program.AnyFlow && p.Flows[code.Flow] != s.FlowName {
			continue
		}
		a.Tries = append(a.Tries[:i:i],
			api.Try{Rule: t.Rule, Text: t.Text, Outcome: soft.FoundState.String(), Index: t.Index},
			api.Try{Rule: p.Rules[index].Number, Text: p.Texts[index],
				Outcome: soft.Matched.String(),
				Index:   index})
		a.Passed, a.Rule, a.Text, a.State, a.Answer = pass, p.Rules[index].Number, p.Texts[index],
			false, ""
		a.Found = fmt.Sprintf("%s -> %s, %s", s.From, s.To, s.Phase)
		return
	}
}
