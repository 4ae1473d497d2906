package netfilter

import (
	"slices"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// stages are the chains by hook, for packets of some families.
type stages struct {
	families int
	chains   [numHooks][]*chain
}

// stagesOf returns the chains of a family in the order in which netfilter asks them.
func (w *writer) stagesOf(family int) *stages {
	s := &stages{families: family}
	for _, c := range w.set.chains {
		if c.hook == hookNone || c.families&family == 0 {
			continue
		}
		if w.idle(c) {
			w.leaveAll(c, map[*chain]bool{})
			continue
		}
		s.chains[c.hook] = append(s.chains[c.hook], c)
	}
	for h := range s.chains {
		slices.SortStableFunc(s.chains[h], func(a, b *chain) int { return a.priority - b.priority })
	}
	return s
}

// leaveAll records the problems of a chain that is not written.
func (w *writer) leaveAll(c *chain, seen map[*chain]bool) {
	seen[c] = true
	for _, e := range c.rules {
		if e.problem != "" {
			w.set.leave(e)
		}
		if to := w.set.byKey[e.target]; to != nil && !seen[to] {
			w.leaveAll(to, seen)
		}
	}
}

// leaveAccepting records the problems of rules that would accept packets, of a chain that is not
// written because no other rule does.
func (w *writer) leaveAccepting(c *chain, seen map[*chain]bool) {
	seen[c] = true
	for _, e := range c.rules {
		accepts := e.verdict == accept || e.verdict == jump || e.verdict == goTo || e.other
		if e.problem != "" && accepts {
			w.set.leave(e)
		}
		if to := w.set.byKey[e.target]; to != nil && !seen[to] {
			w.leaveAccepting(to, seen)
		}
	}
}

// same reports whether both families meet the same chains.
func (s *stages) same(o *stages) bool {
	for h := range s.chains {
		if !slices.Equal(s.chains[h], o.chains[h]) {
			return false
		}
	}
	return true
}

// all writes the rules of the set.
func (w *writer) all() {
	v4, v6 := w.stagesOf(ipv4), w.stagesOf(ipv6)
	pipes := []*stages{v4, v6}
	missing := bothFamilies &^ w.set.seen
	switch {
	case missing == ipv6:
		pipes = pipes[:1]
	case missing == ipv4:
		pipes = pipes[1:]
	case v4.same(v6):
		v4.families = bothFamilies
		pipes = pipes[:1]
	}
	if missing != 0 {
		w.comment("The rules of the other family were not part of what was read: it is refused.")
		w.do(op.ActionDeny, version(missing))
	}
	w.first = w.states
	for _, p := range pipes {
		w.first = w.first && w.safe(p)
	}
	if w.first {
		w.comment("Packets of flows that a rule below has let begin.")
		w.checkState()
	}
	if len(pipes) == 2 {
		next := w.label()
		w.skip(next, version(ipv6))
		w.pipeline(pipes[0])
		w.place(next)
		w.block = true
		pipes = pipes[1:]
	}
	w.pipeline(pipes[0])
	w.checks()
}

func version(family int) []rule.Clause {
	if family == ipv4 {
		return []rule.Clause{{{Op: op.CondVersion, A: 4}}}
	}
	return []rule.Clause{{{Op: op.CondVersion, A: 6}}}
}

// safe reports whether packets of known flows pass everywhere.
func (w *writer) safe(s *stages) bool {
	leaving := append(slices.Clone(s.chains[output]), s.chains[postrouting]...)
	through := append(slices.Clone(s.chains[forward]), s.chains[postrouting]...)
	return w.behindPass(s.chains[prerouting]) && w.behindPass(s.chains[input]) &&
		w.behindPass(leaving) && (w.neverAccepts(s.chains[forward]) || w.behindPass(through))
}

var (
	anyInterface = rule.Clause{{Op: op.CondRecvAny}}
	goesOut      = rule.Clause{{Op: op.CondOut}}
	comesIn      = rule.Clause{{Op: op.CondIn}}
)

// pipeline writes the rules for packets of some families.
func (w *writer) pipeline(s *stages) {
	w.families = s.families
	start := anyKind
	if w.first || !w.states {
		start &^= known
	}
	out, toHost, leaving, post := w.label(), w.label(), w.label(), w.label()
	w.skip(out, []rule.Clause{goesOut})
	if len(s.chains[prerouting]) > 0 {
		dispatch := w.label()
		w.stage(s.chains[prerouting], start, dispatch)
		w.place(dispatch)
		w.block = true
	}
	closed := w.neverAccepts(s.chains[forward])
	if closed {
		for _, c := range s.chains[forward] {
			w.leaveAccepting(c, map[*chain]bool{})
		}
	}
	w.comment("What comes in is for this host, or passes through.")
	w.skip(toHost, []rule.Clause{w.toHost(s.families), comesIn})
	if closed {
		w.do(op.ActionDeny, []rule.Clause{comesIn})
	} else {
		w.comment("What passes through is decided as it leaves, below.")
		w.do(op.ActionAllow, []rule.Clause{comesIn})
	}
	w.begin(toHost, "To this host.")
	w.stage(s.chains[input], start, 0)

	after, behind := label(0), s.chains[postrouting]
	if len(behind) > 0 {
		after = post
	}
	w.begin(out, "What leaves passes through, or comes from this host.")
	w.skip(leaving, []rule.Clause{{not(anyInterface[0])}, w.own(s.families)})
	w.begin(0, "Through this host.")
	if closed {
		w.do(op.ActionDeny)
	} else {
		w.stage(s.chains[forward], start, after)
	}
	w.begin(leaving, "From this host.")
	w.stage(s.chains[output], start, after)
	if len(behind) > 0 {
		w.begin(post, "Everything that leaves.")
		w.stage(behind, start, 0)
	}
}

// begin begins a block of rules.
func (w *writer) begin(l label, title string) {
	w.place(l)
	w.block = true
	w.comment("")
	w.comment(title)
}

// stage writes chains one after the other. Packets that all of them accept continue at the label
// after, or pass if it is 0.
func (w *writer) stage(chains []*chain, start kinds, after label) {
	if len(chains) == 0 {
		chains = []*chain{{accept: true}}
	}
	for i, c := range chains {
		next := after
		if i+1 < len(chains) {
			next = w.label()
		}
		b := &base{writer: w, chain: c, accept: next, entered: map[string]kinds{},
			knownTo: map[string]bool{}, labels: map[string]label{}, final: next == 0}
		b.write(start)
		if i+1 < len(chains) {
			w.place(next)
			w.block = true
		}
	}
}
