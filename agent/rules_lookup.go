package agent

import (
	"net/netip"

	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/rule"
)

// Names are the host's names that rules may have.
func (b *rulebook) Names() *rule.Names { return b.names }

// Member returns the value of an address in a table.
func (b *rulebook) Member(table string, a netip.Addr) (value uint32, found bool) {
	b.view(func(r ruleState, _ *rule.Program) {
		value, found = rulefile.Member(r.set.Tables[table], a)
	})
	return value, found
}

// TableOf returns the first table, by name, that has an address; "" if none has.
func (b *rulebook) TableOf(a netip.Addr) (name string) {
	b.view(func(r ruleState, _ *rule.Program) {
		for table, members := range r.set.Tables {
			if _, found := rulefile.Member(members, a); found && (name == "" || table < name) {
				name = table
			}
		}
	})
	return name
}

// Text returns the text of the rule at an index, if it has that number.
func (b *rulebook) Text(index int, number uint16) (text string) {
	b.view(func(_ ruleState, p *rule.Program) {
		if number != 0 && index < len(p.Rules) && p.Rules[index].Number == number {
			text = p.Texts[index]
		}
	})
	return text
}
