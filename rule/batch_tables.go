package rule

import "github.com/weirnet/weir/rule/op"

// users are rules by the tables that they ask about. Those that go in a group are left out when
// they are met.
type users map[string]map[*Rule]struct{}

// TableUser returns the first rule that asks about a table, or about any if the name is "", nil if
// there is none. It walks all rules the first time only: a file may destroy any number of tables.
func (b *Batch) TableUser(table string) (first *Rule, asksAbout string) {
	if b.users == nil {
		b.users = users{}
		for _, r := range b.rules.Rules {
			b.users.add(r)
		}
	}
	if table != "" {
		return b.userOf(table), table
	}
	for name := range b.users {
		r := b.userOf(name)
		if r != nil && (first == nil || r.Number < first.Number ||
			r.Number == first.Number && name < asksAbout) {
			first, asksAbout = r, name
		}
	}
	return first, asksAbout
}

func (b *Batch) userOf(table string) (first *Rule) {
	for r := range b.users[table] {
		if b.groupOf(r).set == removed {
			b.users.remove(r)
		} else if first == nil || r.Number < first.Number {
			first = r
		}
	}
	return first
}

func (u users) add(r *Rule) {
	for table := range r.tables {
		if u[table] == nil {
			u[table] = map[*Rule]struct{}{}
		}
		u[table][r] = struct{}{}
	}
}

func (u users) remove(r *Rule) {
	for table := range r.tables {
		if delete(u[table], r); len(u[table]) == 0 {
			delete(u, table)
		}
	}
}

// tables yields the tables that the rule asks about.
func (r *Rule) tables(yield func(string) bool) {
	for _, clause := range r.Clauses() {
		for _, t := range clause {
			if (t.Op == op.CondSrcTable || t.Op == op.CondDstTable) && !yield(t.Name) {
				return
			}
		}
	}
}
