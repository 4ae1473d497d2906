package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/rule"
)

// maxName is the longest name of a table.
const maxName = 63

// tableName returns the name of the table that a set becomes. set names it in its source, name is
// what people call it. No two sets share a table.
func (s *ruleset) tableName(set, name string) string {
	if table, ok := s.names[set]; ok {
		return table
	}
	base := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
			c == '_' || c == '.' {
			return c
		}
		return '_'
	}, name)
	base = base[:min(len(base), maxName-6)]
	table := base
	for s.taken[table] || aboutTables[table] != "" {
		s.copies[base]++
		table = fmt.Sprintf("%s_%d", base, s.copies[base]+1)
	}
	s.names[set], s.taken[table] = table, true
	return table
}

// use records that a rule asks a set.
func (s *ruleset) use(at Place, table string) {
	if _, there := s.tables[table]; !there {
		s.tables[table] = rule.Table{}
		s.unknown[table] = at
	}
}

// readIPSet reads a line of `ipset save`.
func readIPSet(s *ruleset, at Place, l string) error {
	words := strings.Fields(l)
	if len(words) < 3 {
		return nil
	}
	name := s.tableName(words[1], words[1])
	delete(s.unknown, name)
	if words[0] == "create" {
		switch kind := words[2]; kind {
		case "hash:ip", "hash:net", "bitmap:ip":
		default:
			s.remarks = append(s.remarks, Remark{Place: at, Text: l, Left: true,
				Effect: EffectUnknown, Why: "a set of the type " + kind + " is not a table"})
		}
		if i := slices.Index(words, "netmask"); i > 0 && i+1 < len(words) {
			s.netmask[name], _ = strconv.Atoi(words[i+1])
		}
		if slices.Contains(words, "bitmask") {
			s.remarks = append(s.remarks, Remark{Place: at, Text: l, Left: true,
				Effect: EffectUnknown, Why: "a table has no mask for what is looked up"})
		}
		if s.tables[name] == nil {
			s.tables[name] = rule.Table{}
		}
		return nil
	}
	if s.tables[name] == nil {
		s.tables[name] = rule.Table{}
	}
	leave := func(why string) {
		s.remarks = append(s.remarks, Remark{Place: at, Text: l, Left: true,
			Effect: EffectUnknown, Why: why})
	}
	if slices.Contains(words[3:], "nomatch") {
		leave("a table has no members that are excepted")
		return nil
	}
	left := uint64(0)
	if i := slices.Index(words, "timeout"); i > 0 && i+1 < len(words) {
		var err error
		if left, err = strconv.ParseUint(words[i+1], 10, 32); err != nil {
			leave("the timeout is not a number of seconds")
			return nil
		}
	}
	prefixes, err := rangePrefixes(words[2])
	if err != nil {
		p, err := parsePrefix(words[2])
		if err != nil {
			leave("the member is not an address or a prefix")
			return nil
		}
		prefixes = []netip.Prefix{p}
	}
	for _, p := range prefixes {
		if bits := s.netmask[name]; bits > 0 && bits < p.Bits() { // of what is looked up, too
			p = netip.PrefixFrom(p.Addr(), bits).Masked()
		}
		s.member(name, p, left)
	}
	return nil
}
