package nl

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is one line of a routing table.
type Route struct {
	Dst    netip.Prefix // 0.0.0.0/0 or ::/0 for the default route
	Via    netip.Addr   // next hop, or zero when Dst is on the link itself
	Src    netip.Addr   // preferred source address, or zero
	Link   int          // index of the link, or 0 to let the kernel find it from Via
	Onlink bool         // Via is reached directly although no route of the link covers it
	Scope  Scope
	Table  int // 0 means the main table (254) when adding
	Metric int // lower wins; 0 leaves the kernel's own
	MTU    int // of the path, in bytes; 0 leaves the link's
	Type   int // unix.RTN_UNICAST (also for 0), RTN_BLACKHOLE, RTN_UNREACHABLE, ...
	Proto  int // who made it: unix.RTPROT_KERNEL, RTPROT_BOOT, ...
}

func routeOf(r netlink.Route) Route {
	return Route{Dst: prefixOf(r.Dst), Via: addrOf(r.Gw), Src: addrOf(r.Src), Link: r.LinkIndex,
		Onlink: r.Flags&unix.RTNH_F_ONLINK != 0, Scope: Scope(r.Scope), Table: r.Table,
		Metric: r.Priority,
		MTU:    r.MTU, Type: r.Type, Proto: int(r.Protocol)}
}

func (r Route) lib() *netlink.Route {
	lib := &netlink.Route{Dst: netOf(r.Dst.Masked()), Gw: ipOf(r.Via), Src: ipOf(r.Src),
		LinkIndex: r.Link,
		Scope:     netlink.Scope(r.Scope), Table: r.Table, Priority: r.Metric, MTU: r.MTU,
		Type:     r.Type,
		Protocol: netlink.RouteProtocol(r.Proto), Family: familyOf(r.Dst.Addr())}
	if r.Onlink {
		lib.Flags = unix.RTNH_F_ONLINK
	}
	return lib
}

// Blackhole reports whether the route leads nowhere: blackhole, unreachable or prohibit.
func (r Route) Blackhole() bool {
	return r.Type == unix.RTN_BLACKHOLE || r.Type == unix.RTN_UNREACHABLE ||
		r.Type == unix.RTN_PROHIBIT
}

func (r Route) String() string {
	s := r.Dst.String()
	if r.Via.IsValid() {
		s += " via " + r.Via.String()
	}
	return fmt.Sprintf("%s dev %d", s, r.Link)
}

// Routes lists the routes of a table in both families, 0 for the main table.
func (c *Conn) Routes(table int) ([]Route, error) {
	if table == 0 {
		table = unix.RT_TABLE_MAIN
	}
	list, err := read("list routes", func() ([]netlink.Route, error) {
		return c.h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: table},
			netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, err
	}
	routes := make([]Route, len(list))
	for i, r := range list {
		routes[i] = routeOf(r)
	}
	return routes, nil
}

// RoutesWithMTU lists the routes of all tables in both families that have an MTU of their own.
// There may be a million others.
func (c *Conn) RoutesWithMTU() (routes []Route, err error) {
	_, err = read("list routes", func() (none struct{}, err error) {
		routes = nil
		any := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
		return none, c.h.RouteListFilteredIter(netlink.FAMILY_ALL, any, netlink.RT_FILTER_TABLE,
			func(r netlink.Route) bool {
				if r.MTU != 0 {
					routes = append(routes, routeOf(r))
				}
				return true
			})
	})
	return routes, err
}

// RoutesInto lists the routes of the main table that lead to some ranges, or into them. There may
// be a million others.
func (c *Conn) RoutesInto(ranges []netip.Prefix) (routes []Route, err error) {
	_, err = read("list routes", func() (none struct{}, err error) {
		routes = nil
		table := &netlink.Route{Table: unix.RT_TABLE_MAIN}
		return none, c.h.RouteListFilteredIter(netlink.FAMILY_ALL, table, netlink.RT_FILTER_TABLE,
			func(r netlink.Route) bool {
				dst := prefixOf(r.Dst)
				for _, in := range ranges {
					if dst.IsValid() && dst.Bits() >= in.Bits() && in.Contains(dst.Addr()) {
						routes = append(routes, routeOf(r))
						break
					}
				}
				return true
			})
	})
	return routes, err
}

// RouteTo asks the kernel how it would send to dst.
func (c *Conn) RouteTo(dst netip.Addr) (Route, error) {
	return c.route(fmt.Sprintf("find route to %s", dst), dst, nil)
}

// MatchRoute asks the kernel which route it would take to dst, out of one link when link is not 0,
// and returns that route as the table has it. It costs the same however many routes there are.
func (c *Conn) MatchRoute(dst netip.Addr, link int) (Route, error) {
	return c.route(fmt.Sprintf("find the route to %s", dst), dst,
		&netlink.RouteGetOptions{OifIndex: link, FIBMatch: true})
}

// RouteFrom asks the kernel how it would send to dst from an address of its own.
func (c *Conn) RouteFrom(src, dst netip.Addr) (Route, error) {
	return c.route(fmt.Sprintf("find the route from %s to %s", src, dst), dst,
		&netlink.RouteGetOptions{SrcAddr: ipOf(src)})
}

func (c *Conn) route(what string, dst netip.Addr, o *netlink.RouteGetOptions) (Route, error) {
	list, err := read(what, func() ([]netlink.Route, error) {
		return c.h.RouteGetWithOptions(ipOf(dst), o)
	})
	if err != nil {
		return Route{}, err
	}
	if len(list) == 0 {
		return Route{}, fmt.Errorf("%s: %w", what, unix.ENETUNREACH)
	}
	return routeOf(list[0]), nil
}

// AddRoute adds a route; one to the same destination with the same metric must not be there.
func (c *Conn) AddRoute(r Route) error {
	return change(fmt.Sprintf("add route %s", r), func() error {
		return c.h.RouteAdd(r.lib())
	}, unix.EEXIST)
}

// ReplaceRoute adds a route or replaces the one to the same destination with the same metric.
func (c *Conn) ReplaceRoute(r Route) error {
	return change(fmt.Sprintf("set route %s", r), func() error { return c.h.RouteReplace(r.lib()) })
}

// DeleteRoute deletes a route.
func (c *Conn) DeleteRoute(r Route) error {
	return change(fmt.Sprintf("delete route %s", r), func() error {
		return c.h.RouteDel(r.lib())
	}, unix.ESRCH)
}
