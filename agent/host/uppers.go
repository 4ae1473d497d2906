package host

import (
	"cmp"
	"slices"

	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
)

// uppers is the list of upper devices, made again when a link has changed that counts.
type uppers struct {
	all   []kernel.Upper // never nil when known
	known bool
}

// note takes the change of a link, of which either side may be empty, and reports whether upper
// devices may have changed.
func (u *uppers) note(old, now nl.Link) (changed bool) {
	if old.Master == now.Master && lower(old) == lower(now) {
		return false
	}
	u.known = false
	return true
}

// lower returns the lower device of a VLAN, 0 for other links and if it is in another namespace.
func lower(l nl.Link) int {
	if l.Kind != "vlan" || l.PeerNS != -1 {
		return 0
	}
	return l.Peer
}

// Uppers returns the upper devices in a certain order: VLANs, and the bridges and bonds of ports.
// The list is never changed in place.
func (l *Links) Uppers() []kernel.Upper {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.uppers.known {
		l.uppers = uppers{all: uppersOf(l.byID), known: true}
	}
	return l.uppers.all
}

func uppersOf(links map[int]nl.Link) []kernel.Upper {
	all := []kernel.Upper{}
	for index, l := range links {
		if l.Master != 0 {
			all = append(all, kernel.Upper{Index: uint32(l.Master), Lower: uint32(index)})
		}
		if below := lower(l); below != 0 {
			all = append(all, kernel.Upper{Index: uint32(index), Lower: uint32(below)})
		}
	}
	slices.SortFunc(all, func(a, b kernel.Upper) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Lower, b.Lower))
	})
	return all
}
