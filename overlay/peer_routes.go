package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// neighbours finds the first candidate of each family that is reached without a router: a router
// would drop packets to pods.
func (d *peerSet) neighbours(p *Peer, candidates []netip.AddrPort) ([]nl.Route, error) {
	var routes []nl.Route
	for _, a := range candidates {
		r, err := d.nl.RouteTo(a.Addr())
		if err != nil || r.Via.IsValid() || r.Link == d.link.Index {
			continue
		}
		if !slices.ContainsFunc(routes, func(o nl.Route) bool {
			return o.Via.Is4() == a.Addr().Is4()
		}) {
			routes = append(routes, nl.Route{Via: a.Addr(), Link: r.Link})
		}
	}
	if routes == nil {
		return nil, fmt.Errorf("overlay: peer %q: no endpoint is on a network of this host, so "+
			"its pods cannot be reached without encryption", p.Name)
	}
	return routes, nil
}

// routeTo returns the route to a range of pods.
func (p *peer) routeTo(r netip.Prefix) (nl.Route, error) {
	for _, route := range p.routes {
		if !route.Via.IsValid() || route.Via.Is4() == r.Addr().Is4() {
			route.Dst = r
			if p.peerEndpoint != nil {
				route.MTU = int(p.peerEndpoint.pathMTU.Load())
			}
			return route, nil
		}
	}
	return nl.Route{}, fmt.Errorf("overlay: peer %q: pods %s cannot be routed without encryption "+
		"by %s; name an endpoint of their family, too",
		p.Name, r, p.routes[0].Via)
}

// addRoutes sets the routes to a peer's ranges. Those of the peer before it are replaced in place;
// one that another program made for the same range stays, and is an error.
func (d *peerSet) addRoutes(p, before *peer) error {
	var errs error
	for _, r := range p.Pods {
		route, err := p.routeTo(r)
		if err == nil {
			err = d.addRoute(route, before != nil && slices.Contains(before.Pods, r))
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("overlay: peer %q: %w", p.Name, err))
		}
	}
	return errs
}

// Reroute restores routes that other programs have deleted.
func (d *peerSet) Reroute() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	var errs error
	for _, p := range d.peers {
		for _, r := range p.Pods {
			route, err := p.routeTo(r)
			if err != nil {
				continue // never set
			}
			if err := d.nl.AddRoute(route); err != nil && !errors.Is(err, unix.EEXIST) {
				errs = errors.Join(errs, fmt.Errorf("overlay: peer %q: %w", p.Name, err))
			}
		}
	}
	return errs
}

// addRoute sets a route; ours means that an existing one belongs to this device.
func (d *peerSet) addRoute(route nl.Route, ours bool) error {
	if ours {
		return d.nl.ReplaceRoute(route)
	}
	err := d.nl.AddRoute(route)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	there, err := d.nl.Routes(0)
	if err != nil {
		return err
	}
	for _, o := range there {
		if o.Dst != route.Dst || o.Metric != defaultMetric(o.Dst) || o.Link == route.Link &&
			o.Via == route.Via && !o.Blackhole() {
			continue
		}
		kept := slices.ContainsFunc(there, func(k nl.Route) bool {
			return k.Dst == o.Dst && k.Metric == blackholeMetric && k.Via == o.Via &&
				k.Link == o.Link &&
				!k.Blackhole()
		})
		if kept && o.Via.IsValid() { // of an earlier device, for a peer without encryption
			return d.nl.ReplaceRoute(route)
		}
		return fmt.Errorf("another program has a route to %s (%s); delete it first", route.Dst, o)
	}
	return nil
}

// defaultMetric is the kernel's metric of a route that was set without one.
func defaultMetric(dst netip.Prefix) int {
	if dst.Addr().Is4() {
		return 0
	}
	return 1024
}

// blackholeMetric is the metric of the routes by which a user of the package blocks the peers'
// ranges while there is no device.
const blackholeMetric = 1 << 30

// deleteRoutes deletes the routes to a peer's ranges, except for those in kept. A route that is
// already gone is not an error.
func (d *peerSet) deleteRoutes(p *peer, kept []netip.Prefix) error {
	var errs error
	for _, r := range p.Pods {
		route, err := p.routeTo(r)
		if err != nil || slices.Contains(kept, r) {
			continue // never set, or another peer's now
		}
		route.MTU = 0 // whatever it has
		if err := d.nl.DeleteRoute(route); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = errors.Join(errs, fmt.Errorf("overlay: %w", err))
		}
	}
	return errs
}
