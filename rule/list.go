package rule

import (
	"net/netip"
	"slices"
)

// List is the content of a table that comes from a file. It never changes: a new content is a new
// List. Until the file was read it has no prefixes.
type List struct {
	File     string
	Prefixes []netip.Prefix // in the order of netip.Prefix.Compare, each once
	Seen     string         // which content of the file this is; "" if it was not read
}

// Has reports whether a prefix is in the list.
func (l *List) Has(p netip.Prefix) bool {
	_, found := slices.BinarySearchFunc(l.Prefixes, p, netip.Prefix.Compare)
	return found
}

// Difference returns the prefixes of next that l does not have, and those that only l has.
func (l *List) Difference(next *List) (added, removed []netip.Prefix) {
	a, b := l.Prefixes, next.Prefixes
	for len(a) > 0 || len(b) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = a[0].Compare(b[0])
		}
		switch {
		case order < 0:
			removed, a = append(removed, a[0]), a[1:]
		case order > 0:
			added, b = append(added, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return added, removed
}

// Size returns how many members a table has.
func (s *Ruleset) Size(table string) int {
	if l := s.Lists[table]; l != nil {
		return len(l.Prefixes)
	}
	return len(s.Tables[table])
}

// Entries returns the members of a table, in no order, as engines take them.
func (s *Ruleset) Entries(table string) []TableEntry {
	all := make([]TableEntry, 0, s.Size(table))
	if l := s.Lists[table]; l != nil {
		for _, p := range l.Prefixes {
			all = append(all, TableEntry{Prefix: p})
		}
		return all
	}
	for p, v := range s.Tables[table] {
		all = append(all, TableEntry{Prefix: p, Value: v})
	}
	return all
}

// Lookup looks an address up in a table: the longest prefix that holds it counts.
func (s *Ruleset) Lookup(table string, a netip.Addr) (value uint32, found bool) {
	e, found := s.LookupEntry(table, a)
	return e.Value, found
}

// LookupEntry returns the member of a table with the longest prefix that holds an address.
func (s *Ruleset) LookupEntry(table string, a netip.Addr) (e TableEntry, found bool) {
	if !a.IsValid() || s.Size(table) == 0 {
		return e, false
	}
	l := s.Lists[table]
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			return e, false
		}
		if l != nil && l.Has(p) {
			return TableEntry{Prefix: p}, true
		}
		if v, ok := s.Tables[table][p]; ok {
			return TableEntry{Prefix: p, Value: v}, true
		}
	}
	return e, false
}
