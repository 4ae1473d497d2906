package services

import (
	"errors"
	"net/netip"
	"os"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

var quoted = regexp.MustCompile(`"([0-9a-fA-F.:]+)"`)

// addressesIn finds the addresses that a record holds.
func addressesIn(text []byte) (all []netip.Addr) {
	for _, m := range quoted.FindAllSubmatch(text, -1) {
		if a, err := netip.ParseAddr(string(m[1])); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// loopback is the index of the loopback interface in every namespace.
const loopback = 1

// AddAddress gives the loopback the address of a service. It may be there already.
func AddAddress(a netip.Addr) error { return onLoopback(a, (*nl.Conn).AddAddr, unix.EEXIST) }

// RemoveAddress takes it away. It need not be there.
func RemoveAddress(a netip.Addr) error {
	// ENXIO: the loopback has no IPv6 (inet6_addr_del)
	return onLoopback(a, (*nl.Conn).DeleteAddr, unix.EADDRNOTAVAIL, unix.ENXIO)
}

// onLoopback runs change. The errors done say that nothing was to be done.
func onLoopback(a netip.Addr, change func(*nl.Conn, int, netip.Prefix) error,
	done ...error) error {
	c, err := nl.Open(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	err = change(c, loopback, netip.PrefixFrom(a, a.BitLen()))
	if slices.ContainsFunc(done, func(d error) bool { return errors.Is(err, d) }) {
		return nil
	}
	return err
}

// RemoveTraces takes away the addresses that the record in a file names, and the record, unless it
// is to be kept: then the services stay in it. One that cannot be read is kept as it is.
func RemoveTraces(file string, keep bool) error {
	r, unusable := readRecord(file)
	if unusable != nil { // damaged, or of a later version: the addresses can be found
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		r = record{Held: addressesIn(text)}
	}
	var errs []error
	for _, a := range r.Held {
		errs = append(errs, RemoveAddress(a))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	switch {
	case keep && unusable != nil:
		return nil // the Weir that wrote it can use it, or weir service add sets it aside
	case keep:
		r.Held = r.virtual() // a new agent gives the loopback these before it counts on them
	default:
		r = record{}
	}
	return r.write(file)
}
