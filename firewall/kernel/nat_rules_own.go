package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
)

// ownAddresses are the host's, as far as instances of nat may not give them away.
type ownAddresses struct {
	all   map[netip.Addr]bool
	local []netip.Prefix // what local routes lead to
	// those of interfaces that would have no other one left; the agent refuses the same in rules
	// that are new (host.Links.IsOnly)
	only map[netip.Addr]bool
}

func newOwnAddresses(all []program.NAT, ifs []firewall.Interface) ownAddresses {
	own := ownAddresses{all: map[netip.Addr]bool{}, only: map[netip.Addr]bool{}}
	if len(all) == 0 {
		return own
	}
	away := map[netip.Addr]bool{}
	for i := range all {
		for _, r := range all[i].Addrs {
			away[r.Public] = true
		}
	}
	for _, i := range ifs {
		own.local = append(own.local, i.Local...)
		others := false
		for _, p := range i.Addrs {
			a := p.Addr()
			own.all[a] = true
			others = others || a.Is4() && a.IsGlobalUnicast() && !away[a]
		}
		for _, p := range i.Addrs {
			if a := p.Addr(); !others && away[a] {
				own.only[a] = true
			}
		}
	}
	return own
}

// refuse returns an error if the target of a redirection is the host itself, or if it would give
// the only address of an interface away. public is invalid if it gives none away.
func (o ownAddresses) refuse(number uint16, word string, to, public netip.Addr) error {
	switch {
	case o.all[to] || slices.ContainsFunc(o.local, func(p netip.Prefix) bool {
		return p.Contains(to)
	}):
		return fmt.Errorf("nat %d: %s: %s is an address of this host", number, word, to)
	case o.only[public]:
		return fmt.Errorf("nat %d: %s: %s is the only address of its interface", number, word,
			public)
	}
	return nil
}
