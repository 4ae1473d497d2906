package rulefile

import (
	"net/netip"

	"github.com/weirnet/weir/rule"
)

// Entries returns the members of a table as engines take them.
func Entries(t rule.Table) []rule.TableEntry {
	all := make([]rule.TableEntry, 0, len(t))
	for p, v := range t {
		all = append(all, rule.TableEntry{Prefix: p, Value: v})
	}
	return all
}

// Member looks an address up in a table: the longest prefix that holds it counts.
func Member(t rule.Table, a netip.Addr) (value uint32, found bool) {
	if !a.IsValid() || len(t) == 0 {
		return 0, false
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			return 0, false
		}
		if v, ok := t[p]; ok {
			return v, true
		}
	}
	return 0, false
}
