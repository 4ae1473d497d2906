package rules

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// do executes one command in ipfw's grammar. The message is what ipfw prints without -q: the rule
// that was added, with its number, or what was done. If it is lenient, what is to be removed need
// not be there.
func (m *Manager) do(line string, lenient bool) (message string, err error) {
	c, err := rule.ParseLine(line, m.names)
	if err != nil {
		return "", err
	}
	switch c.Kind {
	case rule.CommandNone:
		return "", &api.Error{Message: "there is no command",
			Advice: "write one of a rule file, such as: add allow tcp from any to me 22"}
	case rule.CommandZero:
		if err := m.zero(c.Numbers); err != nil {
			return "", err
		}
		return cleared(c.Numbers), nil
	case rule.CommandTableAdd, rule.CommandTableDelete:
		return m.changeMembers(c, lenient)
	case rule.CommandFlush:
		message = "Flushed all rules."
	}
	err = m.change(func(set *rule.Ruleset) error {
		batch := rule.NewBatch(set)
		defer batch.Flush()
		if err := apply(c, batch); err != nil && (!lenient || !rule.IsAbsent(err)) {
			return err
		}
		if c.Kind == rule.CommandAdd {
			message = listing(added(set, c.Rule))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return message, nil
}

// apply executes a command on rules that a running node has. A table that a rule asks about is not
// destroyed.
func apply(c *rule.Command, batch *rule.Batch) error {
	if c.Kind == rule.CommandTableDrop {
		if r, table := batch.TableUser(c.Table); r != nil {
			return fmt.Errorf("table %s is in use by rule %d", table, r.Number)
		}
	}
	return batch.Apply(c)
}

// doAll executes the commands of a file on the rules in force, all or none. What is to be removed
// and is not there is no error. A file that flushes the rules and adds others is a whole rule set:
// what it does not let pass is denied.
func (m *Manager) doAll(name, text string) (message string, err error) {
	commands, err := rule.ParseCommands(name, text, m.names)
	if err != nil {
		return "", err
	}
	var lines []string
	err = m.changeVersion(func(next *Version) (err error) {
		lines, err = next.apply(name, commands)
		return err
	})
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range commands {
		if c.Kind != rule.CommandZero {
			continue
		}
		if err := m.zeroLocked(c.Numbers); err != nil {
			return "", fmt.Errorf("%s:%d: the rules of the file are in force, but: %w",
				c.Pos.File, c.Pos.Line, err)
		}
		lines = append(lines, cleared(c.Numbers))
	}
	return strings.Join(lines, "\n"), nil
}

// apply executes the commands of a file on a copy of the rules in force. It returns the rules that
// were added, as ipfw lists them.
func (r *Version) apply(name string, commands []*rule.Command) (lines []string, err error) {
	flushed, whole := false, false
	batch := rule.NewBatch(r.Set)
	defer batch.Flush()
	for _, c := range commands {
		if err := apply(c, batch); err != nil && !rule.IsAbsent(err) {
			return nil, fmt.Errorf("%s:%d: %w", c.Pos.File, c.Pos.Line, err)
		}
		switch c.Kind {
		case rule.CommandAdd:
			lines = append(lines, listing(added(r.Set, c.Rule)))
			whole = flushed
		case rule.CommandZero:
			if err := errNoRule(batch, c.Numbers); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", c.Pos.File, c.Pos.Line, err)
			}
		}
		flushed = flushed || c.Kind == rule.CommandFlush
	}
	if whole {
		r.Strict, r.Source = true, name
	}
	return lines, nil
}

// added finds the rule that was just added: behind all rules of its number, or of the highest
// number when it had none.
func added(set *rule.Ruleset, r *rule.Rule) *rule.Rule {
	if r.Number == 0 {
		return set.Rules[len(set.Rules)-1]
	}
	behind := sort.Search(len(set.Rules), func(i int) bool {
		return set.Rules[i].Number > r.Number
	})
	return set.Rules[behind-1]
}

// listing is a rule as ipfw lists it.
func listing(r *rule.Rule) string {
	return fmt.Sprintf("%05d %s", r.Number, r.Listing(rule.Style{Flows: true}))
}

// cleared is the message of zero.
func cleared(numbers []rule.Range) string {
	if len(numbers) == 0 {
		return "Accounting cleared."
	}
	lines := make([]string, len(numbers))
	for i, n := range numbers {
		lines[i] = fmt.Sprintf("Entry %d cleared.", n.Lo)
	}
	return strings.Join(lines, "\n")
}

// zero sets counters to 0: of all rules, or of those with the numbers.
func (m *Manager) zero(numbers []rule.Range) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errNoRule(rule.NewBatch(m.rules.Set), numbers); err != nil {
		return err
	}
	return m.zeroLocked(numbers)
}

// zeroLocked is zero without a check: a number that no rule has does nothing.
func (m *Manager) zeroLocked(numbers []rule.Range) error {
	if len(numbers) == 0 {
		numbers = []rule.Range{{}} // 0 means all
	}
	for _, n := range numbers {
		if err := m.config.Engine.Zero(uint16(n.Lo)); err != nil {
			return err
		}
	}
	now := time.Now()
	m.zeroed.Store(&now)
	return nil
}

// errNoRule says which of the numbers no rule has.
func errNoRule(rules *rule.Batch, numbers []rule.Range) error {
	for _, n := range numbers {
		if n.Lo != 0 && n.Lo != program.DefaultNumber && !rules.Has(uint16(n.Lo)) {
			return &api.Error{Message: fmt.Sprintf("there is no rule %d", n.Lo),
				Advice: "weir fw list shows the rules with their numbers"}
		}
	}
	return nil
}
