package kernel

import (
	"fmt"
	"net/netip"
)

// RouteMTU is a route of any table that has its own MTU, in bytes.
type RouteMTU struct {
	Dst netip.Prefix
	MTU uint32
}

// SetRouteMTUs replaces what is known of the host's routes with an MTU of their own. The kernel may
// choose another route than the most specific of these (policy routing), so each prefix gets the
// least MTU of all that cover it. The stack knows what a larger packet needs.
func (e *Engine) SetRouteMTUs(routes []RouteMTU) error {
	least := map[netip.Prefix]uint32{}
	for _, r := range routes {
		if old, ok := least[r.Dst.Masked()]; !ok || r.MTU < old {
			least[r.Dst.Masked()] = r.MTU
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	keep := map[weirTableKey]bool{}
	for dst, mtu := range least {
		for bits := range dst.Bits() {
			if above, ok := least[netip.PrefixFrom(dst.Addr(), bits).Masked()]; ok {
				mtu = min(mtu, above)
			}
		}
		keep[trieKey(dst)] = true
		if err := e.objects.RouteMtus.Put(trieKey(dst), mtu); err != nil {
			return fmt.Errorf("write the MTU of the route to %s: %w", dst, err)
		}
	}
	if err := prune(e.objects.RouteMtus, func(k weirTableKey) bool { return keep[k] }); err != nil {
		return fmt.Errorf("forget the MTU of routes: %w", err)
	}
	e.forwarding.RouteMtus = uint32(len(least))
	return e.putForwardingLocked()
}
