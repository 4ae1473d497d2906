package firewall

import (
	"cmp"
	"slices"
)

// Changes compares two lists of interfaces, each in order of index: changed are those of now that
// are new or differ from old, gone are those of old that now lacks.
func DiffInterfaces(old, now []Interface) (changed, gone []Interface) {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].Index < now[0].Index:
			gone, old = append(gone, old[0]), old[1:]
		case len(old) == 0 || now[0].Index < old[0].Index:
			changed, now = append(changed, now[0]), now[1:]
		default:
			if !old[0].Equal(now[0]) {
				changed = append(changed, now[0])
			}
			old, now = old[1:], now[1:]
		}
	}
	return changed, gone
}

// ByIndex orders interfaces.
func CompareInterfaces(a, b Interface) int { return cmp.Compare(a.Index, b.Index) }

// Equal reports whether i and o are the same interface with the same settings.
func (i Interface) Equal(o Interface) bool {
	return i.Index == o.Index && i.Name == o.Name && slices.Equal(i.Addrs, o.Addrs) &&
		i.AcceptLocal == o.AcceptLocal && i.ReversePath == o.ReversePath
}
