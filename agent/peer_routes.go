package agent

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// stopGapMetric is worse than any other route's, so that these count only when the tunnel's own are
// gone.
const stopGapMetric = 1 << 30

// stopGap makes a range unreachable when no other route leads there.
func stopGap(dst netip.Prefix) nl.Route {
	return nl.Route{Dst: dst, Type: unix.RTN_UNREACHABLE, Metric: stopGapMetric}
}

// stopGaps makes ranges of peers unreachable when no other route leads there: without that, packets
// for the tunnel would take the default route while there is no tunnel, unencrypted.
func stopGaps(ranges []netip.Prefix) error {
	return withRoutes(ranges, func(conn *nl.Conn, dst netip.Prefix) error {
		return conn.ReplaceRoute(stopGap(dst))
	})
}

// keepGaps does the same where somebody took it back, and touches nothing else.
func keepGaps(ranges []netip.Prefix) error {
	return withRoutes(ranges, func(conn *nl.Conn, dst netip.Prefix) error {
		if err := conn.AddRoute(stopGap(dst)); !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	})
}

// endGaps takes back what stopGaps did for ranges. What is gone already is fine.
func endGaps(ranges []netip.Prefix) error {
	return withRoutes(ranges, func(conn *nl.Conn, dst netip.Prefix) error {
		return deleteRoute(conn, stopGap(dst))
	})
}

// withRoutes does something for each range; one that fails does not keep the others back.
func withRoutes(ranges []netip.Prefix, do func(*nl.Conn, netip.Prefix) error) error {
	if len(ranges) == 0 {
		return nil
	}
	conn, err := openRoutes()
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

// openGaps takes back what stopGaps did, for the ranges that gone names, whoever did it: an agent
// that died in the middle of a change has left routes that no record knows.
func openGaps(gone func(netip.Prefix) bool) error {
	conn, err := openRoutes()
	if err != nil {
		return err
	}
	defer conn.Close()
	routes, err := conn.Routes(0)
	errs := []error{err}
	for _, r := range routes {
		if r.Type == unix.RTN_UNREACHABLE && r.Metric == stopGapMetric && gone(r.Dst) {
			errs = append(errs, deleteRoute(conn, stopGap(r.Dst)))
		}
	}
	return errors.Join(errs...)
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
	conn, err := openRoutes()
	if err != nil {
		return err
	}
	defer conn.Close()
	routes, err := conn.Routes(0)
	errs := []error{err}
	for _, r := range routes {
		if slices.Contains(pods, r.Dst) && r.Via.IsValid() && r.Metric != stopGapMetric {
			errs = append(errs, conn.ReplaceRoute(nl.Route{Dst: r.Dst, Via: r.Via, Link: r.Link,
				Metric: stopGapMetric}))
		}
	}
	return errors.Join(errs...)
}

// removePlain deletes the routes to pods that are reached without encryption.
func removePlain(pods []netip.Prefix) error {
	if len(pods) == 0 {
		return nil
	}
	conn, err := openRoutes()
	if err != nil {
		return err
	}
	defer conn.Close()
	routes, err := conn.Routes(0)
	errs := []error{err}
	for _, r := range routes {
		if slices.Contains(pods, r.Dst) && r.Via.IsValid() {
			errs = append(errs, deleteRoute(conn, r))
		}
	}
	return errors.Join(errs...)
}
