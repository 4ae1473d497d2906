package rule

import (
	"cmp"
	"slices"
)

// Batch applies commands one after the other, with the results of Command.Apply. But no line walks
// all rules because it moves or removes sets: a file may have any number of such lines. The rules
// of a set are a group, and what a line does to the set it does to the group.
type Batch struct {
	rules *Ruleset
	first [removed + 1]group  // of the rules that were there when the Batch was made, by set
	sets  [removed + 1]*group // of the rules that are in a set now
	of    map[*Rule]*group    // of rules whose group is not that of first
	users users               // nil until TableUser asks for them
}

// removed is the set of the rules that are only in the Ruleset still.
const removed = ReservedSet + 1

// group is the rules that were in one set at one time. Whatever comes later does the same to all of
// them.
type group struct {
	into *group // the group that they were moved to; nil: none
	set  uint8
	size int // with those of groups that were moved here
}

// NewBatch returns a Batch that changes s. The rules of s, and their sets, are right after Flush.
func NewBatch(s *Ruleset) *Batch {
	b := &Batch{rules: s}
	b.begin()
	return b
}

func (b *Batch) begin() {
	for i := range b.first {
		b.first[i] = group{set: uint8(i)}
		b.sets[i] = &b.first[i]
	}
	for _, r := range b.rules.Rules {
		b.first[r.Set].size++
	}
	b.of, b.users = map[*Rule]*group{}, nil
}

// Apply executes a command as its own Apply does, each once.
func (b *Batch) Apply(c *Command) error {
	switch c.Kind {
	case CommandAdd:
		return b.add(c)
	case CommandDelete:
		return b.delete(c)
	case CommandFlush:
		b.remove(1<<ReservedSet - 1)
	case CommandMove:
		if c.Number == 0 {
			b.move(c.From, c.To)
			return nil
		}
		return b.moveRules(c)
	case CommandSwap:
		from, to := b.sets[c.From], b.sets[c.To]
		b.sets[c.From], b.sets[c.To] = to, from
		from.set, to.set = c.To, c.From
	default:
		return c.Apply(b.rules)
	}
	return nil
}

// Flush does what is left to do.
func (b *Batch) Flush() {
	kept := b.rules.Rules[:0]
	for _, r := range b.rules.Rules {
		if set := b.groupOf(r).set; set == removed {
			continue
		} else if set != r.Set {
			r = r.inSet(set)
		}
		kept = append(kept, r)
	}
	clear(b.rules.Rules[len(kept):])
	b.rules.Rules = kept
	b.begin()
}

// Has reports whether there is a rule of a number.
func (b *Batch) Has(number uint16) bool {
	from, to := b.span(Range{Lo: uint32(number), Hi: uint32(number)})
	return slices.ContainsFunc(b.rules.Rules[from:to], func(r *Rule) bool {
		return b.groupOf(r).set != removed
	})
}

func (b *Batch) add(c *Command) error {
	s := b.rules
	n := len(s.Rules)
	if held := n - b.sets[removed].size; held >= maxHeld {
		return errHeld(held)
	}
	// a rule without number comes behind those that are there
	for n > 0 && b.groupOf(s.Rules[n-1]).set == removed {
		n--
		b.forget(s.Rules[n])
		s.Rules[n] = nil
	}
	s.Rules = s.Rules[:n]
	r := s.Add(c.Rule)
	b.join(r, c.Rule.Set)
	if b.users != nil {
		b.users.add(r)
	}
	return nil
}

func (b *Batch) delete(c *Command) (err error) {
	if len(c.Numbers) == 0 {
		b.remove(c.Sets)
		return nil
	}
	for _, n := range c.Numbers {
		if !b.deleteOf(n, cmp.Or(c.Sets, 1<<removed-1)) && err == nil {
			err = errNoRule(n)
		}
	}
	return err
}

// deleteOf removes the rules of some sets whose numbers are in a range, and reports whether there
// are some.
func (b *Batch) deleteOf(numbers Range, sets uint32) (found bool) {
	from, to := b.span(numbers)
	kept := from
	for _, r := range b.rules.Rules[from:to] {
		switch set := b.groupOf(r).set; {
		case set == removed:
			b.forget(r)
		case sets>>set&1 == 1:
			b.forget(r)
			found = true
		default:
			b.rules.Rules[kept] = r
			kept++
		}
	}
	b.rules.Rules = slices.Delete(b.rules.Rules, kept, to)
	return found
}

// remove removes the rules of some sets.
func (b *Batch) remove(sets uint32) {
	for set := range uint8(removed) {
		if sets>>set&1 == 1 {
			b.move(set, removed)
		}
	}
}

// move moves the rules of a set.
func (b *Batch) move(from, to uint8) {
	g, into := b.sets[from], b.sets[to]
	if g == into || g.size == 0 {
		return
	}
	g.into = into
	into.size += g.size
	b.sets[from] = &group{set: from}
}

func (b *Batch) moveRules(c *Command) error {
	from, to := b.span(Range{Lo: uint32(c.Number), Hi: uint32(c.Number)})
	found := false
	for _, r := range b.rules.Rules[from:to] {
		if b.groupOf(r).set != removed {
			found = true
			b.leave(r)
			b.join(r, c.To)
		}
	}
	if !found {
		return errNoRule(Range{Lo: uint32(c.Number), Hi: uint32(c.Number)})
	}
	return nil
}

// span returns where the rules are whose numbers are in a range.
func (b *Batch) span(numbers Range) (from, to int) {
	at := func(number uint32) int {
		i, _ := slices.BinarySearchFunc(b.rules.Rules, number, func(r *Rule, number uint32) int {
			return cmp.Compare(uint32(r.Number), number)
		})
		return i
	}
	from = at(numbers.Lo)
	return from, max(from, at(numbers.Hi+1))
}

// groupOf returns the group in which a rule is now.
func (b *Batch) groupOf(r *Rule) *group {
	g := b.of[r]
	if g == nil {
		g = &b.first[r.Set]
	}
	for g.into != nil {
		if g.into.into != nil {
			g.into = g.into.into // so that the next one finds it sooner
		}
		g = g.into
	}
	return g
}

func (b *Batch) join(r *Rule, set uint8) {
	g := b.sets[set]
	g.size++
	if g != &b.first[r.Set] {
		b.of[r] = g
	}
}

// forget is for a rule that leaves the Ruleset.
func (b *Batch) forget(r *Rule) {
	b.leave(r)
	if b.users != nil {
		b.users.remove(r)
	}
}

func (b *Batch) leave(r *Rule) {
	b.groupOf(r).size--
	delete(b.of, r)
}
