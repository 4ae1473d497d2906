package rules

import (
	"net/netip"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// Names are the host's names that rules may have.
func (m *Manager) Names() *rule.Names { return m.names }

// LookupTable returns the value of an address in a table.
func (m *Manager) LookupTable(table string, a netip.Addr) (value uint32, found bool) {
	m.View(func(r Version, _ *program.Program) {
		value, found = r.Set.Lookup(table, a)
	})
	return value, found
}

// TableOf returns the first table, by name, that has an address; "" if none has.
func (m *Manager) TableOf(a netip.Addr) (name string) {
	m.View(func(r Version, _ *program.Program) {
		for table := range r.Set.Tables {
			if _, found := r.Set.Lookup(table, a); found && (name == "" || table < name) {
				name = table
			}
		}
	})
	return name
}

// RuleText returns the text of the rule at an index, if it has that number.
func (m *Manager) RuleText(index int, number uint16) (text string) {
	m.View(func(_ Version, p *program.Program) {
		if number != 0 && index < len(p.Rules) && p.Rules[index].Number == number {
			text = p.Texts[index]
		}
	})
	return text
}
