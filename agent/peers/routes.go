package peers

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/internal/nl"
)

// blackholeMetric is worse than that of any other route, so that these routes count only when the
// tunnel's own are gone.
const blackholeMetric = 1 << 30

// blackhole is the route that makes a range unreachable when no other route leads there.
func blackhole(dst netip.Prefix) nl.Route {
	return nl.Route{Dst: dst, Type: unix.RTN_UNREACHABLE, Metric: blackholeMetric}
}

// addBlackholes makes ranges of peers unreachable when no other route leads there: without that,
// packets for the tunnel would take the default route while there is no tunnel, unencrypted.
func addBlackholes(ranges []netip.Prefix) error {
	return withRoutes(ranges, func(conn *nl.Conn, dst netip.Prefix) error {
		return conn.ReplaceRoute(blackhole(dst))
	})
}

// keepBlackholes adds those that another program deleted, and touches nothing else.
func keepBlackholes(ranges []netip.Prefix) error {
	return withRoutes(ranges, func(conn *nl.Conn, dst netip.Prefix) error {
		if err := conn.AddRoute(blackhole(dst)); !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	})
}

// deleteBlackholes deletes the routes of addBlackholes. A route that is already gone is not an
// error.
func deleteBlackholes(ranges []netip.Prefix) error {
	return withRoutes(ranges, func(conn *nl.Conn, dst netip.Prefix) error {
		return deleteRoute(conn, blackhole(dst))
	})
}

// withRoutes calls do for each range; an error does not stop the others.
func withRoutes(ranges []netip.Prefix, do func(*nl.Conn, netip.Prefix) error) error {
	if len(ranges) == 0 {
		return nil
	}
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, dst := range ranges {
		errs = append(errs, do(conn, dst))
	}
	return errors.Join(errs...)
}

// eachRoute calls do for each route of the host that wanted selects; an error does not stop the
// others.
func eachRoute(wanted func(nl.Route) bool, do func(*nl.Conn, nl.Route) error) error {
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	all, err := conn.Routes(0)
	errs := []error{err}
	for _, r := range all {
		if wanted(r) {
			errs = append(errs, do(conn, r))
		}
	}
	return errors.Join(errs...)
}

// deleteBlackholesOf deletes every blackhole route whose range satisfies gone, whichever agent made
// it: an agent that died in the middle of a change has left routes that no record knows.
func deleteBlackholesOf(gone func(netip.Prefix) bool) error {
	return eachRoute(func(r nl.Route) bool {
		return r.Type == unix.RTN_UNREACHABLE && r.Metric == blackholeMetric && gone(r.Dst)
	}, func(conn *nl.Conn, r nl.Route) error { return deleteRoute(conn, blackhole(r.Dst)) })
}

// deleteRoute deletes a route that may not be there.
func deleteRoute(conn *nl.Conn, r nl.Route) error {
	if err := conn.DeleteRoute(r); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// keepPlain sets the routes to pods without encryption once more, with a metric that is worse:
// those of the device go with the agent, and these connections need no agent.
func keepPlain(pods []netip.Prefix) error {
	return eachRoute(func(r nl.Route) bool {
		return slices.Contains(pods, r.Dst) && r.Via.IsValid() && r.Metric != blackholeMetric
	}, func(conn *nl.Conn, r nl.Route) error {
		return conn.ReplaceRoute(nl.Route{Dst: r.Dst, Via: r.Via, Link: r.Link,
			Metric: blackholeMetric})
	})
}

// removePlain deletes the routes to pods that are reached without encryption.
func removePlain(pods []netip.Prefix) error {
	if len(pods) == 0 {
		return nil
	}
	return eachRoute(func(r nl.Route) bool {
		return slices.Contains(pods, r.Dst) && r.Via.IsValid()
	}, deleteRoute)
}
