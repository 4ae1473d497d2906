package host

import (
	"bytes"
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
	if stacked(old) == stacked(now) && (!stacked(now) || old.Master == now.Master &&
		old.Kind == now.Kind && old.VLAN == now.VLAN && old.Peer == now.Peer &&
		old.PeerNS == now.PeerNS && old.Filtering == now.Filtering &&
		bytes.Equal(old.HardwareAddr, now.HardwareAddr)) {
		return false
	}
	u.known = false
	return true
}

// stacked reports whether a link is an upper device or has one.
func stacked(l nl.Link) bool {
	return l.Master != 0 || l.Kind == "vlan" || l.Kind == "bridge" || isBond(l)
}

func isBond(l nl.Link) bool { return l.Kind == "bond" || l.Kind == "team" }

// Uppers returns the upper devices whose frames need not be evaluated at their lower devices, too,
// in a certain order. The list is never changed in place.
func (l *Links) Uppers() []kernel.Upper {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.uppers.known {
		l.uppers = uppers{all: uppersOf(l.byID), known: true}
	}
	return l.uppers.all
}

// uppersOf finds the upper devices. A bridge with VLANs of its own is not among them: a link-layer
// address that is its own in one VLAN belongs to another host in the next.
func uppersOf(links map[int]nl.Link) []kernel.Upper {
	all := []kernel.Upper{}
	for index, l := range links {
		if l.Kind == "vlan" && l.Peer != 0 && l.PeerNS == -1 {
			all = append(all, kernel.Upper{Index: uint32(index), Lower: uint32(l.Peer),
				Kind: kernel.UpperVLAN, Proto: l.VLAN.Proto, ID: l.VLAN.ID})
		}
		master := links[l.Master]
		u := kernel.Upper{Index: uint32(l.Master), Lower: uint32(index), Kind: kernel.UpperBond}
		switch {
		case isBond(master):
			all = append(all, u)
		case master.Kind == "bridge" && !master.Filtering:
			u.Kind = kernel.UpperBridge
			copy(u.MACs[0][:], master.HardwareAddr)
			copy(u.MACs[1][:], l.HardwareAddr)
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b kernel.Upper) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Lower, b.Lower))
	})
	return all
}
