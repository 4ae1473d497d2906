package rule

import (
	"slices"

	"github.com/weirnet/weir/rule/op"
)

// packets are the packets of a box that come to a slot.
type packets struct {
	box  box
	at   int
	size int // of box
}

// walk is the way of one rule's packets to it.
type walk struct {
	*linter
	to     int
	stops  []stop // the rules on the way that may take or redirect some of them
	todo   []packets
	size   int          // of the boxes in todo
	took   map[int]bool // slots of rules that took packets
	jumped bool
}

// stop is a rule on the way.
type stop struct {
	slot int
	sure bool // it takes every packet in its box
}

// walkTo prepares the walk of packets to a rule.
func (l *linter) walkTo(slot int, all []box) *walk {
	w := &walk{linter: l, to: slot, took: make(map[int]bool)}
	w.plan()
	for _, b := range all {
		w.push(b, 0)
	}
	return w
}

// plan finds the rules that matter. Where states may send any packet, no rule before has taken any
// for sure; only jumps from there still matter, because they lead past what comes after.
func (w *walk) plan() {
	back := make(map[int]bool) // where calls from further on land
	for _, at := range w.calls {
		if target := int(w.codes[at].Arg); at >= w.to && target <= w.to &&
			w.boxes[at].meets(&w.boxes[w.to]) {
			back[target] = true
		}
	}
	for at := range w.to + 1 {
		if w.behind[at] || back[at] {
			w.stops = slices.DeleteFunc(w.stops, func(s stop) bool { return w.final(s.slot) })
			for i := range w.stops {
				w.stops[i].sure = false
			}
		}
		r := w.rules[at]
		jump := r.Action.Op == op.ActionSkipTo || r.Action.Op == op.ActionCall
		if at == w.to || !jump && !w.final(at) || r.Defer || w.empty[at] ||
			!w.boxes[at].meets(&w.boxes[w.to]) ||
			excludes(w.lasting(w.opaque[at]), w.opaque[w.to]) {
			continue
		}
		sure := r.Prob == 0 && !r.Rate.Next && w.implied(at, w.to)
		if jump || sure {
			w.stops = append(w.stops, stop{at, sure})
		}
	}
}

// Bounds of the work for one rule. A rule file can make any number of boxes: each rule on the way
// may leave as many as a box has dimensions.
const (
	maxSteps = 1 << 20 // boxes compared
	maxSpans = 1 << 22 // in the boxes that wait: 128 MB at most, less where boxes share sets
)

// run follows the packets, one box at a time, so that one that gets through is found soon. It
// reports whether any reached the rule, and false if it gave up.
func (w *walk) run() (reached, ok bool) {
	steps := 0
	for len(w.todo) > 0 {
		p := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.size -= p.size
		i, _ := slices.BinarySearchFunc(w.stops, p.at, func(s stop, at int) int {
			return s.slot - at
		})
		for ; i < len(w.stops); i++ {
			if steps++; steps > maxSteps {
				return false, false
			}
			if w.boxes[w.stops[i].slot].meets(&p.box) {
				break
			}
		}
		if i == len(w.stops) || !w.meet(w.stops[i], p.box) {
			return true, true
		}
		if w.size > maxSpans {
			return false, false
		}
	}
	return false, true
}

// push adds packets to follow.
func (w *walk) push(b box, at int) {
	size := b.size()
	w.todo = append(w.todo, packets{b, at, size})
	w.size += size
}

// meet sends packets through a rule some of whose box they are in. It returns false if they may
// reach the end by a call.
func (w *walk) meet(s stop, b box) bool {
	r, target := w.rules[s.slot], int(w.codes[s.slot].Arg)
	switch {
	case r.Action.Op == op.ActionCall: // they come back, or not, or land anywhere
		return false
	case r.Action.Op == op.ActionSkipTo && target <= w.to:
		inside, _ := b.and(&w.boxes[s.slot])
		w.push(inside, target)
		w.jumped = true
	case s.sure:
		w.took[s.slot] = true
	}
	if !s.sure {
		w.push(b, s.slot+1)
		return true
	}
	for _, rest := range b.minus(&w.boxes[s.slot], nil) {
		w.push(rest, s.slot+1)
	}
	return true
}
