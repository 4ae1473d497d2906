package agent

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// stopGapMetric is worse than any other route's, so that these count only when the tunnel's own are gone.
const stopGapMetric = 1 << 30

// stopGaps sets or deletes routes that make pods of a peer unreachable when no other route leads there: without them, packets for the
// tunnel would take the default route while the agent is away, unencrypted.
func stopGaps(pods []netip.Prefix, on bool) error {
	conn, err := nl.Open(nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, dst := range pods {
		r := nl.Route{Dst: dst, Type: unix.RTN_UNREACHABLE, Metric: stopGapMetric}
		if on {
			errs = append(errs, conn.ReplaceRoute(r))
		} else {
			errs = append(errs, deleteRoute(conn, r))
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

// keepPlain sets the routes to pods without encryption once more, with a metric that is worse: those of the device go with the agent, and these
// connections need no agent.
func keepPlain(pods []netip.Prefix) error {
	conn, err := nl.Open(nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	routes, err := conn.Routes(0)
	errs := []error{err}
	for _, r := range routes {
		if slices.Contains(pods, r.Dst) && r.Via.IsValid() && r.Metric != stopGapMetric {
			errs = append(errs, conn.ReplaceRoute(nl.Route{Dst: r.Dst, Via: r.Via, Link: r.Link, Metric: stopGapMetric}))
		}
	}
	return errors.Join(errs...)
}

// removePlain deletes the routes to pods that are reached without encryption.
func removePlain(pods []netip.Prefix) error {
	conn, err := nl.Open(nil)
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
