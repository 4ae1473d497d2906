package rule

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/internal/program"
)

// NumberStep is the distance between rules that number themselves, as in ipfw.
const NumberStep = 100

// ReservedSet is the set that flush spares and that cannot be disabled, as in ipfw.
const ReservedSet = 31

// Ruleset is a set of rules with its tables: the result of a rule file once every line of it has
// been obeyed, and what a running node holds. It is not safe for concurrent use; Clone it to keep a
// version.
type Ruleset struct {
	// in order of evaluation: by number, then by insertion; without the default rule
	Rules    []*Rule
	Disabled uint32 // bit per disabled set
	Tables   map[string]Table
	// of those tables that come from a file, which have no members in Tables
	Lists map[string]*List
	Pipes map[uint16]*Pipe // by number
	NATs  map[uint16]*NAT  // by number
	// one_pass is disabled: no rule may be a pipe then, and what nat lets pass continues
	ManyPass bool
	// when those of their members end that have a timeout, on the clock of Now
	Deadlines Deadlines
	// the time at which commands are applied: timeouts count from it. A file that is read has 0.
	Now time.Duration
}

// Table is the content of a named table: prefixes with a value, 0 when none was given.
type Table map[netip.Prefix]uint32

// Active returns the rules of enabled sets in order of evaluation, without the default rule.
func (s *Ruleset) Active() []*Rule {
	active := make([]*Rule, 0, len(s.Rules))
	for _, r := range s.Rules {
		if s.Disabled>>r.Set&1 == 0 {
			active = append(active, r)
		}
	}
	return active
}

// Add puts a rule behind the rules of its number and returns it. A rule without number gets the
// highest number so far plus NumberStep, or just the highest number when there is no space above
// it, as in ipfw.
func (s *Ruleset) Add(r *Rule) *Rule {
	if r.Number == 0 {
		numbered := *r
		numbered.Number = s.next()
		r = &numbered
	}
	if n := len(s.Rules); n == 0 || s.Rules[n-1].Number <= r.Number {
		s.Rules = append(s.Rules, r)
		return r
	}
	i, _ := slices.BinarySearchFunc(s.Rules, r.Number, func(have *Rule, number uint16) int {
		if have.Number <= number {
			return -1
		}
		return 1
	})
	s.Rules = slices.Insert(s.Rules, i, r)
	return r
}

func (s *Ruleset) next() uint16 {
	last := uint16(0)
	if n := len(s.Rules); n > 0 {
		last = s.Rules[n-1].Number
	}
	if last < program.DefaultNumber-NumberStep {
		last += NumberStep
	}
	return last
}

// Delete removes the rules whose numbers lie in a range and returns how many.
func (s *Ruleset) Delete(numbers Range) int { return s.deleteOf(numbers, 1<<32-1) }

// deleteOf is Delete for the rules of some sets, a bit for each.
func (s *Ruleset) deleteOf(numbers Range, sets uint32) int {
	return s.remove(func(r *Rule) bool {
		return uint32(r.Number) >= numbers.Lo && uint32(r.Number) <= numbers.Hi &&
			sets>>r.Set&1 == 1
	})
}

// DeleteSet removes the rules of a set and returns how many.
func (s *Ruleset) DeleteSet(set uint8) int {
	return s.remove(func(r *Rule) bool { return r.Set == set })
}

// Flush removes all rules but those of ReservedSet. Tables stay.
func (s *Ruleset) Flush() {
	s.remove(func(r *Rule) bool { return r.Set != ReservedSet })
}

func (s *Ruleset) remove(gone func(*Rule) bool) int {
	before := len(s.Rules)
	s.Rules = slices.DeleteFunc(slices.Clone(s.Rules), gone)
	return before - len(s.Rules)
}

// Move puts all rules of set from, or if number is not 0 all rules of that number, into set to.
func (s *Ruleset) Move(number uint16, from, to uint8) error {
	moved := 0
	for i, r := range s.Rules {
		if (number != 0 && r.Number == number) || (number == 0 && r.Set == from) {
			s.Rules[i] = r.inSet(to)
			moved++
		}
	}
	if number != 0 && moved == 0 {
		return errNoRule(Range{Lo: uint32(number), Hi: uint32(number)})
	}
	return nil
}

// Swap exchanges two sets.
func (s *Ruleset) Swap(a, b uint8) {
	for i, r := range s.Rules {
		switch r.Set {
		case a:
			s.Rules[i] = r.inSet(b)
		case b:
			s.Rules[i] = r.inSet(a)
		}
	}
}

func (r *Rule) inSet(set uint8) *Rule {
	moved := *r
	moved.Set = set
	return &moved
}

// Clone returns a copy that shares only rules, which never change.
func (s *Ruleset) Clone() *Ruleset {
	c := &Ruleset{Rules: slices.Clone(s.Rules), Disabled: s.Disabled,
		Deadlines: s.Deadlines.clone(),
		Now:       s.Now, Lists: maps.Clone(s.Lists), Pipes: maps.Clone(s.Pipes),
		NATs: maps.Clone(s.NATs), ManyPass: s.ManyPass}
	if s.Tables != nil {
		c.Tables = make(map[string]Table, len(s.Tables))
	}
	for name, t := range s.Tables {
		c.Tables[name] = maps.Clone(t)
	}
	return c
}

// Entries returns the members of a table ordered by address, then length.
func (t Table) Entries() []TableEntry {
	entries := make([]TableEntry, 0, len(t))
	for p, v := range t {
		entries = append(entries, TableEntry{p, v})
	}
	slices.SortFunc(entries, func(a, b TableEntry) int {
		return a.Prefix.Compare(b.Prefix)
	})
	return entries
}
