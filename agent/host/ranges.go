package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/pod"
)

// errRange refuses a range of pods that overlaps a network of an interface. Hosts there may have
// its addresses. The first of them, which becomes the node's own, is often that of the router.
type errRange struct {
	own, other netip.Prefix
	iface      string
}

func (e errRange) Error() string {
	return fmt.Sprintf("pod range %s overlaps %s, which is reached by interface %s: containers "+
		"and the host would take addresses of others", e.own, e.other, e.iface)
}

// Hint returns what to do.
func (errRange) Hint() string {
	return "choose a range that no other network uses: pods.ranges in weir.toml"
}

// isPodEnd reports whether a link has an alias of pods and their gateways.
func isPodEnd(l nl.Link) bool { return strings.HasPrefix(l.Alias, pod.AliasPrefix) }

// CheckRanges compares the ranges of pods with the networks that interfaces have addresses in. Of
// addresses that have no network, those of the tunnel and of the loopback may be in a range. A
// network of a router advertisement does not count: any host on the link could keep the node from
// adding pods.
func (l *Links) CheckRanges(ranges []netip.Prefix, tunnel string) error {
	return l.checkNetworks(ranges, tunnel, false)
}

// checkNetworks is CheckRanges, with advertised also for networks of router advertisements.
func (l *Links) checkNetworks(ranges []netip.Prefix, tunnel string, advertised bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, index := range slices.Sorted(maps.Keys(l.addrs)) {
		link := l.byID[index]
		if _, of := l.pods[index]; of || isPodEnd(link) {
			continue
		}
		own := link.Loopback || link.Name == tunnel
		for _, a := range l.addrs[index] {
			if a.IsSingleIP() && own ||
				!advertised && slices.Contains(l.advertised[index], a) {
				continue
			}
			for _, r := range ranges {
				if r.Overlaps(a) {
					return errRange{r, a.Masked(), link.Name}
				}
			}
		}
	}
	return nil
}

// checkRoutes compares the ranges of pods with the routes to them or into them that others have
// made. A wider route, like the default route, loses against the pods' routes.
func (l *Links) checkRoutes(ranges []netip.Prefix, tunnel string) error {
	if len(ranges) == 0 {
		return nil
	}
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	routes, err := conn.RoutesInto(ranges)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, route := range routes {
		link := l.byID[route.Link]
		if route.Blackhole() || link.Loopback || link.Name == tunnel || isPodEnd(link) {
			continue
		}
		i := slices.IndexFunc(ranges, route.Dst.Overlaps)
		return errRange{ranges[i], route.Dst, link.Name}
	}
	return nil
}

// hasGateways reports whether the host has the first address of every range of pods, as an agent
// before this one has left it.
func (l *Links) hasGateways(ranges []netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range ranges {
		gw := netip.PrefixFrom(r.Addr().Next(), r.Addr().BitLen())
		has := false
		for index, addrs := range l.addrs {
			has = has || l.byID[index].Loopback && slices.Contains(addrs, gw)
		}
		if !has {
			return false
		}
	}
	return true
}

// RangesFree refuses ranges of pods that belong to others. Those of an agent before this one are
// the node's own.
func (l *Links) RangesFree(ranges []netip.Prefix, tunnel string) error {
	if l.hasGateways(ranges) {
		return nil
	}
	if err := l.checkNetworks(ranges, tunnel, true); err != nil {
		return err
	}
	return l.checkRoutes(ranges, tunnel)
}
