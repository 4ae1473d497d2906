// Package routes reads routes from the kernel, with a timeout, because some requests are made under
// locks that the watchdog checks.
package routes

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
)

// slowest is how long a request to the kernel may take.
const slowest = 10 * time.Second

// Open connects to rtnetlink, for requests that end within 10 seconds.
func Open() (*nl.Conn, error) { return nl.OpenWithin(nil, slowest) }

// List returns the host's routes as engines take them.
func List() ([]firewall.Route, error) {
	conn, err := Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	routes, err := conn.Routes(0)
	if err != nil {
		return nil, err
	}
	var all []firewall.Route
	for _, r := range routes {
		all = append(all, firewall.Route{Dst: r.Dst, Interface: uint32(r.Link),
			Blackhole: r.Blackhole()})
	}
	return all, nil
}

// ToHost returns what the local routes of the host lead to: its addresses, and prefixes at which it
// takes packets without having these addresses.
func ToHost() (all []netip.Prefix, err error) {
	conn, err := Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	routes, err := conn.Routes(unix.RT_TABLE_LOCAL)
	for _, r := range routes {
		if r.Type == unix.RTN_LOCAL {
			all = append(all, r.Dst)
		}
	}
	return all, err
}

// Local returns the local routes of the host that are not those of its addresses.
func Local() ([]nl.Route, error) { return nl.LocalRoutes(slowest) }

// IsToHost reports whether the kernel takes packets to an address for the host itself: one of its
// addresses, or one to which a local route leads. It is false without a route.
func IsToHost(a netip.Addr) (bool, error) {
	conn, err := Open()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	route, err := conn.RouteTo(a)
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) ||
		errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) { // as the routes say
		return false, nil
	}
	return route.Type == unix.RTN_LOCAL || route.Type == unix.RTN_ANYCAST, err
}

// Lookup returns the interface by which packets to an address leave the host, and the address that
// the kernel gives them. An error means that there is no route.
func Lookup(to netip.Addr) (link uint32, from netip.Addr, err error) {
	conn, err := Open()
	if err != nil {
		return 0, from, err
	}
	defer conn.Close()
	route, err := conn.RouteTo(to)
	return uint32(route.Link), route.Src, err
}
