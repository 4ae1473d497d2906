package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// do executes one command in ipfw's grammar. The message is for people: the rule that was added,
// with its number.
func (b *Book) do(line string) (message string, err error) {
	c, err := rule.ParseLine(line, b.names)
	if err != nil {
		return "", err
	}
	switch c.Verb {
	case rule.VerbNone:
		return "", b.zero(line)
	case rule.VerbTableAdd, rule.VerbTableDelete:
		return "", b.changeMembers(c)
	}
	err = b.change(func(set *rule.Ruleset) error {
		if c.Verb == rule.VerbTableDrop {
			if err := errInUse(set, c.Table); err != nil {
				return err
			}
		}
		before := len(set.Rules)
		if err := c.Apply(set); err != nil {
			return err
		}
		if c.Verb == rule.VerbAdd && len(set.Rules) > before {
			message = listing(added(set, c.Rule))
		}
		return nil
	})
	return message, err
}

// added finds the rule that was just added: behind all rules of its number, or of the highest
// number when it had none.
func added(set *rule.Ruleset, r *rule.Rule) *rule.Rule {
	last := set.Rules[len(set.Rules)-1]
	for _, have := range set.Rules {
		if r.Number != 0 && have.Number == r.Number {
			last = have
		}
	}
	return last
}

// listing is a rule as ipfw lists it.
func listing(r *rule.Rule) string { return fmt.Sprintf("%05d %s", r.Number, r.Text()) }

// zero sets counters to 0: of all rules, or of those whose numbers follow. The parser has checked
// the numbers.
func (b *Book) zero(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "zero" {
		return errors.New("nothing to do")
	}
	if len(words) == 1 {
		return b.config.Engine.Zero(0)
	}
	var numbers []uint16
	for _, w := range words[1:] {
		n, err := strconv.ParseUint(w, 10, 16)
		if err != nil {
			return err
		}
		numbers = append(numbers, uint16(n))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range numbers {
		if n != program.DefaultNumber && !hasRule(b.rules.Set, n) {
			return fmt.Errorf("there is no rule %d", n)
		}
	}
	for _, n := range numbers {
		if err := b.config.Engine.Zero(n); err != nil {
			return err
		}
	}
	return nil
}

func hasRule(set *rule.Ruleset, number uint16) bool {
	for _, r := range set.Rules {
		if r.Number == number {
			return true
		}
	}
	return false
}
