package rules

import (
	"net/netip"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// Names are the host's names that rules may have.
func (b *Book) Names() *rule.Names { return b.names }

// Member returns the value of an address in a table.
func (b *Book) Member(table string, a netip.Addr) (value uint32, found bool) {
	b.View(func(r Version, _ *program.Program) {
		value, found = r.Set.Member(table, a)
	})
	return value, found
}

// TableOf returns the first table, by name, that has an address; "" if none has.
func (b *Book) TableOf(a netip.Addr) (name string) {
	b.View(func(r Version, _ *program.Program) {
		for table := range r.Set.Tables {
			if _, found := r.Set.Member(table, a); found && (name == "" || table < name) {
				name = table
			}
		}
	})
	return name
}

// Text returns the text of the rule at an index, if it has that number.
func (b *Book) Text(index int, number uint16) (text string) {
	b.View(func(_ Version, p *program.Program) {
		if number != 0 && index < len(p.Rules) && p.Rules[index].Number == number {
			text = p.Texts[index]
		}
	})
	return text
}
