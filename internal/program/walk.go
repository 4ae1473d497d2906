package program

import (
	"fmt"

	"github.com/weirnet/weir/rule/op"
)

// MaxWalk is how many steps a packet may take through the rules of a Program, whatever it looks
// like. A step is a rule that is visited, or an entry of a list in one of its conditions that the
// classifier does not decide. One takes some 45 ns in the kernel, where nothing else runs on that
// CPU meanwhile, so the longest walk takes 6 ms. This is less than the kernel gives a whole round
// of packets (net.core.netdev_budget_usecs, 8 ms at 250 Hz). Without calls a walk visits each rule
// once at most, MaxRules in all.
const MaxWalk = 1 << 17

// stretch is the longest way from a slot on: to a rule that ends it, and to a return, in steps.
// What cannot be is negative.
type stretch struct{ ends, returns int64 }

const never = -1

// LongestWalk bounds the steps of any packet from above. It knows calls from their returns, but not
// which conditions exclude each other.
func (p *Program) LongestWalk() int64 {
	all := int64(0)
	for slot := range p.Rules {
		all += p.steps(slot)
	}
	most := all * (maxJumps + 1) // each jump begins another way downwards
	calls := false
	for i := range p.Rules {
		calls = calls || p.Rules[i].Action == op.ActionCall
	}
	depths := 1
	if calls {
		depths = maxCalls + 1
	}
	var inner []stretch
	for range depths {
		inner = p.walks(inner, most)
	}
	total := inner[0].ends
	for _, slot := range p.resumes() {
		total += inner[slot].ends
	}
	return min(total, most)
}

// Limits of a walk, as engines have them: docs/design/0003-evaluation.md section 3.
const (
	maxJumps = 256
	maxCalls = 16
)

// walks returns the longest walks from each slot at one depth of calls. inner are those one call
// deeper, nil where no call is made any more. The walk from slot 0 at the outermost depth ends at a
// return of an empty stack only by continuing.
func (p *Program) walks(inner []stretch, most int64) []stretch {
	w := make([]stretch, len(p.Rules)+1)
	w[len(p.Rules)] = stretch{never, never}
	for slot := len(p.Rules) - 1; slot >= 0; slot-- {
		r, next, steps := &p.Rules[slot], w[slot+1], p.steps(slot)
		switch r.Action {
		case op.ActionCount, op.ActionCheckState:
			w[slot] = next
		case op.ActionSkipTo:
			w[slot] = further(next, w[r.Arg])
		case op.ActionReturn: // an empty stack, or a condition that is false, continues
			w[slot] = further(next, stretch{never, 0})
		case op.ActionCall:
			w[slot] = next
			if inner == nil {
				break
			}
			called := inner[r.Arg]
			w[slot].ends = max(w[slot].ends, called.ends)
			if called.returns >= 0 {
				w[slot] = further(w[slot], stretch{plus(next.ends, called.returns),
					plus(next.returns, called.returns)})
			}
		default: // ends the walk, if its conditions are true
			w[slot] = further(next, stretch{0, never})
		}
		w[slot] = stretch{min(plus(w[slot].ends, steps), most),
			min(plus(w[slot].returns, steps), most)}
	}
	return w
}

func further(a, b stretch) stretch {
	return stretch{max(a.ends, b.ends), max(a.returns, b.returns)}
}

func plus(a, b int64) int64 {
	if a < 0 {
		return never
	}
	return a + b
}

// resumes returns where a walk may go back to, once for each flow name. That is the first rule with
// a state of that name that does not end the walk, if a rule behind it looks such states up.
func (p *Program) resumes() (slots []int) {
	first, last := map[uint8]int{}, map[uint8]int{}
	anywhere := never
	for slot := range p.Rules {
		r := &p.Rules[slot]
		if r.State == op.StateNone {
			continue
		}
		if r.Flow == AnyFlow {
			anywhere = slot
			continue
		}
		if r.State.LooksUp() {
			last[r.Flow] = slot
		}
		switch r.Action {
		case op.ActionCount, op.ActionSkipTo, op.ActionCall, op.ActionReturn:
			if _, ok := first[r.Flow]; !ok && r.State != op.StateCheck {
				first[r.Flow] = slot
			}
		}
	}
	for flow, slot := range first {
		if l, ok := last[flow]; ok && l > slot || anywhere > slot {
			slots = append(slots, slot)
		}
	}
	return slots
}

// steps is what a visit of one rule takes.
func (p *Program) steps(slot int) int64 {
	r := &p.Rules[slot]
	n := int64(1)
	for i := r.Cond; i < r.CondEnd; i++ {
		switch c := &p.Conds[i]; c.Op {
		case op.CondSrcIn, op.CondDstIn, op.CondSrcPort, op.CondDstPort, op.CondWin,
			op.CondICMPType, op.CondICMP6Type, op.CondTTL, op.CondLen,
			op.CondID, op.CondTagged:
			n += int64(max(c.N, 1))
		default:
			n++
		}
	}
	return n
}

// CheckWalk refuses a Program that a packet may walk through for too long.
func (p *Program) CheckWalk() error {
	n := p.LongestWalk()
	if n <= MaxWalk {
		return nil
	}
	return fmt.Errorf("a packet could take %d steps through these rules, at most %d are allowed: "+
		"%s", n, MaxWalk, p.whyLong())
}

// whyLong names what contributes most to a long walk: the target that most calls and the most rules
// behind it make long, or else the rule with the most entries.
func (p *Program) whyLong() string {
	behind := make([]int64, len(p.Rules)+1)
	for slot := len(p.Rules) - 1; slot >= 0; slot-- {
		behind[slot] = behind[slot+1] + p.steps(slot)
	}
	calls, first := map[uint32]int64{}, map[uint32]int{}
	worst, most := uint32(0), int64(0)
	longest := 0
	for slot := range p.Rules {
		if r := &p.Rules[slot]; r.Action == op.ActionCall {
			if calls[r.Arg]++; calls[r.Arg] == 1 {
				first[r.Arg] = slot
			}
			if n := calls[r.Arg] * behind[r.Arg]; n > most {
				worst, most = r.Arg, n
			}
		}
		if p.steps(slot) > p.steps(longest) {
			longest = slot
		}
	}
	if most > 0 {
		return fmt.Sprintf("%d rules call what begins at rule %d (rule %d is the first), where %d "+
			"steps follow; "+
			"let fewer rules call it, or let it return sooner", calls[worst], p.Rules[worst].Number,
			p.Rules[first[worst]].Number, behind[worst])
	}
	return fmt.Sprintf("rule %d alone takes %d for its lists; put these into tables",
		p.Rules[longest].Number, p.steps(longest))
}
