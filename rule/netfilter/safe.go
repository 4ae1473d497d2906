package netfilter

// effect is what a list of rules does to packets of known flows.
type effect uint8

const (
	fallsThrough effect = iota // none is refused, and the rules behind decide
	passes                     // all are accepted
	maybeRefused
)

// frame is a list of rules in the middle of which a packet is, with the lists that it returns to.
type frame struct {
	rules []*entry
	at    int // index of the next rule
	up    *frame
	// noKnown: packets of known flows were accepted in front of all jumps to the list
	noKnown bool
}

// knownPass reports whether packets of known flows that are at the frame's next rule are accepted,
// for sure, if no chain comes behind its base chain. Then a check-state in front of that rule
// changes no verdict.
func (w *writer) knownPass(f *frame, base *chain) bool {
	rest := known
	for ; f != nil; f = f.up {
		switch w.follow(f.rules[f.at:], &rest) {
		case passes:
			return true
		case maybeRefused:
			return false
		}
	}
	return base.accept
}

// behindPass reports whether packets of known flows are accepted by all of the chains, for sure.
func (w *writer) behindPass(chains []*chain) bool {
	for _, c := range chains {
		rest := known
		if f := w.follow(c.rules, &rest); f == maybeRefused || f == fallsThrough && !c.accept {
			return false
		}
	}
	return true
}

// followed is a question that follow answers once: what a chain does to some kinds.
type followed struct {
	chain string
	rest  kinds
}

// follow reports what rules do to the kinds in rest, and removes those that are accepted.
func (w *writer) follow(rules []*entry, rest *kinds) effect {
	sure := true // every packet comes to the next rule
	for _, e := range rules {
		if e.problem != "" || e.kinds&*rest == 0 {
			continue
		}
		always := sure && e.unconditional()
		switch e.verdict {
		case proceed:
			if e.log {
				return maybeRefused // the log would miss them
			}
		case accept:
			if !always {
				continue
			}
			if *rest &^= e.kinds; *rest == 0 {
				return passes
			}
		case back:
			if always && e.kinds&*rest == *rest {
				return fallsThrough
			}
			sure = false
		case jump, goTo:
			to := w.set.byKey[e.target]
			if to == nil || e.verdict == goTo && !always {
				return maybeRefused
			}
			question := followed{to.key, *rest}
			f, ok := w.effects[question]
			if !ok {
				inside := *rest
				f = w.follow(to.rules, &inside)
				w.effects[question] = f
			}
			if f == maybeRefused || f == passes && always && e.kinds&*rest == *rest {
				return f
			}
			if e.verdict == goTo {
				if e.kinds&*rest == *rest {
					return fallsThrough
				}
				sure = false // some kinds do not come to the next rule, others do
			}
		default:
			return maybeRefused
		}
	}
	return fallsThrough
}

// neverAccepts reports whether chains refuse every packet.
func (w *writer) neverAccepts(chains []*chain) bool {
	for _, c := range chains {
		if !c.accept && !w.reaches(c, map[*chain]bool{}, func(e *entry) bool {
			return e.verdict == accept
		}) {
			return true
		}
	}
	return false
}

// idle reports whether a chain changes no verdict, whatever its rules are.
func (w *writer) idle(c *chain) bool {
	return c.accept && !w.reaches(c, map[*chain]bool{}, func(e *entry) bool {
		return e.final() || e.log
	})
}

// reaches reports whether a rule that the chain leads to is one of those.
func (w *writer) reaches(c *chain, seen map[*chain]bool, is func(*entry) bool) bool {
	seen[c] = true
	for _, e := range c.rules {
		if e.problem != "" {
			continue
		}
		if is(e) {
			return true
		}
		to := w.set.byKey[e.target]
		if to != nil && !seen[to] && w.reaches(to, seen, is) {
			return true
		}
	}
	return false
}
