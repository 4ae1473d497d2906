package host

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/program"
)

// hopTable is the routing table by which the host takes packets for its own that a rule with fwd
// gives to one of its sockets.
const hopTable = 0x77656972

// setHops finds the routes to the next hops of rules with fwd. To one without a route nothing is
// sent. While one is the host itself, the host takes marked packets for its own.
func (r *Routes) setHops(p *program.Program) error {
	if p.Features&program.HasFwd == 0 {
		return nil
	}
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	r.released.Store(false)
	var hops []kernel.NextHop
	var own [2]bool
	seen := map[netip.Addr]bool{}
	for _, h := range p.NextHops {
		to := h.Addr()
		six := bit(to.Is6())
		// what has a port is meant to be the host's, and may become so
		own[six] = own[six] || h.Port() != 0
		if seen[to] {
			continue
		}
		seen[to] = true
		hop, local := findHop(conn, to)
		own[six] = own[six] || local
		hops = append(hops, hop)
	}
	for six, is := range own {
		if is {
			err = errors.Join(err, takeMarked(conn, six == 1))
		}
	}
	return errors.Join(err, r.engine.SetNextHops(hops))
}

func bit(is bool) int {
	if is {
		return 1
	}
	return 0
}

// findHop returns how packets get to a next hop, and whether it is the host itself.
func findHop(conn *nl.Conn, to netip.Addr) (hop kernel.NextHop, local bool) {
	hop = kernel.NextHop{To: to, Via: to}
	route, err := conn.RouteTo(to)
	switch {
	case err != nil || route.Blackhole():
		return hop, false
	case route.Type == unix.RTN_LOCAL || to.IsLoopback():
		return hop, true
	case route.Type != unix.RTN_UNICAST:
		return hop, false
	}
	if route.Via.IsValid() {
		hop.Via = route.Via
	}
	hop.Interface, hop.MTU = uint32(route.Link), uint32(route.MTU)
	return hop, false
}

// RemoveUnusedFwdRouting removes the routing rule and table for rules with fwd, unless the rules in
// force need them.
func (r *Routes) RemoveUnusedFwdRouting(p *program.Program) error {
	if p.Features&program.HasFwd != 0 || r.released.Load() {
		return nil
	}
	err := RemoveFwdRouting()
	r.released.Store(err == nil)
	return err
}

// takeMarked has the host take packets of a family for its own that have the mark. It changes
// nothing where it does already: a change of routes makes the agent come back here.
func takeMarked(conn *nl.Conn, six bool) error {
	there, err := conn.HasMarkRule(kernel.FwdMark, hopTable, six)
	if err == nil && !there {
		err = conn.AddMarkRule(kernel.FwdMark, hopTable, six)
	}
	if err != nil {
		return unlessMissing(err)
	}
	all, err := conn.Routes(hopTable)
	if err != nil || slices.ContainsFunc(all, func(r nl.Route) bool {
		return r.Type == unix.RTN_LOCAL && r.Dst == hopRoute(six).Dst
	}) {
		return err
	}
	return unlessMissing(conn.ReplaceRoute(hopRoute(six)))
}

// RemoveFwdRouting takes back what takeMarked did, also in an earlier run.
func RemoveFwdRouting() error {
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, six := range []bool{false, true} {
		// the rule goes last: where there is none, nothing is left
		there, err := conn.HasMarkRule(kernel.FwdMark, hopTable, six)
		if !there {
			errs = append(errs, unlessMissing(err))
			continue
		}
		err = conn.DeleteRoute(hopRoute(six))
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) { // it went before
			err = nil
		}
		errs = append(errs, err, conn.DeleteMarkRule(kernel.FwdMark, hopTable, six))
	}
	return errors.Join(errs...)
}

// unlessMissing drops an error about a family that the host does not have.
func unlessMissing(err error) error {
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

func hopRoute(six bool) nl.Route {
	r := nl.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Link: 1,
		Scope: nl.Scope(unix.RT_SCOPE_HOST), Table: hopTable, Type: unix.RTN_LOCAL}
	if six {
		r.Dst, r.Scope = netip.PrefixFrom(netip.IPv6Unspecified(), 0), nl.ScopeGlobal
	}
	return r
}
