package cluster

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/firewall"
)

// maxEndpoints is how many addresses of the host others try.
const maxEndpoints = 8

// Reach has what decides where the tunnel of this host is reached.
type Reach struct {
	Interfaces func() []firewall.Interface
	Guards     func(name string) bool // an interface is guarded
	IsPod      func(netip.Addr) bool  // an address is in the ranges of pods
	Tunnel     string                 // the name of the tunnel's interface
	Port       uint16                 // of the tunnel
}

// Announce says where the tunnel of this host is reached.
func (s *Service) Announce() { s.SetEndpoints(s.config.Reach.endpoints()) }

// endpoints returns the addresses of interfaces that others may reach.
func (r *Reach) endpoints() []netip.AddrPort {
	addrs := []netip.AddrPort{}
	for _, i := range r.Interfaces() {
		if i.Name == r.Tunnel || strings.HasPrefix(i.Name, "pod:") || !r.Guards(i.Name) {
			continue
		}
		for _, a := range i.Addrs {
			if a.Addr().IsGlobalUnicast() && !r.IsPod(a.Addr()) && len(addrs) < maxEndpoints {
				addrs = append(addrs, netip.AddrPortFrom(a.Addr(), r.Port))
			}
		}
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return slices.Compact(addrs)
}
