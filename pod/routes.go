package pod

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// The metrics of the routes of a second interface, behind those of the first: higher than any that
// the kernel or a DHCP client chooses.
const (
	secondMetric = 2000
	metricTries  = 64
)

// secondTable plus its index is the routing table of a second interface.
const secondTable = 1 << 20

// addRoutes gives an interface the route to the gateway and the pod's routes over it. They come
// behind existing ones of another interface or program, which would lose them now or when this
// interface goes. Packets from the addresses of a second interface use a table of its own: over the
// first interface they would come from the wrong pod and be refused.
func addRoutes(inner *nl.Conn, link int, gw netip.Addr, p *Pod) error {
	metric := 0
	if r, err := inner.MatchRoute(anywhere(gw), 0); err == nil {
		metric = max(secondMetric, r.Metric+1)
	} else if !errors.Is(err, unix.ENETUNREACH) { // an unreachable or prohibit default route
		metric = secondMetric
	}
	for _, r := range routesOver(link, gw, p) {
		r.Metric = metric
		err := inner.AddRoute(r)
		for try := 0; errors.Is(err, unix.EEXIST) && try < metricTries; try++ {
			r.Metric = max(secondMetric, r.Metric+1)
			err = inner.AddRoute(r)
		}
		if err != nil {
			return err
		}
	}
	if metric == 0 {
		return nil
	}
	p.Table = secondTable + link
	for _, r := range routesOver(link, gw, p) {
		r.Table = p.Table
		if err := inner.ReplaceRoute(r); err != nil {
			return err
		}
	}
	for _, a := range p.Addrs {
		if a.Is4() != gw.Is4() {
			continue
		}
		if err := inner.AddSourceRule(a, p.Table); err != nil {
			return err
		}
	}
	return nil
}

// routesOver returns the route to a gateway and the pod's routes over it.
func routesOver(link int, gw netip.Addr, p *Pod) []nl.Route {
	all := []nl.Route{{Dst: host(gw), Link: link, Scope: nl.ScopeLink}}
	for _, dst := range p.RoutesOver(gw) {
		if dst != host(gw) {
			all = append(all, nl.Route{Dst: dst, Via: gw, Link: link})
		}
	}
	return all
}

// RoutesOver returns the networks that the pod reaches over a gateway.
func (s *Spec) RoutesOver(gw netip.Addr) (all []netip.Prefix) {
	for _, dst := range s.Routes {
		if dst = dst.Masked(); dst.IsValid() && dst.Addr().Is4() == gw.Is4() &&
			!slices.Contains(all, dst) {
			all = append(all, dst)
		}
	}
	if len(all) == 0 {
		return []netip.Prefix{netip.PrefixFrom(unspecified(gw), 0)}
	}
	return all
}

// removeRules removes the rules of a second interface from its namespace, if its path still leads
// there: routes go with their interface, rules do not. A rule that stays points to an empty table.
func removeRules(p *Pod) {
	if p.Table == 0 {
		return
	}
	ns, err := nl.OpenNS(p.Netns)
	if err != nil {
		return
	}
	defer ns.Close()
	if id, err := ns.ID(); err != nil || id != p.NetnsID {
		return
	}
	inner, err := nl.Open(ns)
	if err != nil {
		return
	}
	defer inner.Close()
	for _, a := range p.Addrs {
		_ = inner.DeleteSourceRule(a, p.Table) // another program may have deleted it
	}
}

// anywhere returns an address that only a default route leads to, of the blocks for documentation
// (RFC 5737, 3849).
func anywhere(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})
}
