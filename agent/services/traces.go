package services

import (
	"errors"
	"net/netip"

	"github.com/weirnet/weir/internal/nl"
)

// loopback is the index of the loopback interface in every namespace.
const loopback = 1

// AddAddress gives the loopback the address of a service.
func AddAddress(a netip.Addr) error { return onLoopback(a, (*nl.Conn).AddAddr) }

// RemoveAddress takes it away. It need not be there.
func RemoveAddress(a netip.Addr) error { return onLoopback(a, (*nl.Conn).DeleteAddr) }

func onLoopback(a netip.Addr, change func(*nl.Conn, int, netip.Prefix) error) error {
	c, err := nl.Open(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return change(c, loopback, netip.PrefixFrom(a, a.BitLen()))
}

// RemoveTraces takes away the addresses that the record in a file names, and the record, unless it
// is to be kept: then the services stay in it.
func RemoveTraces(file string, keep bool) error {
	r, err := readRecord(file)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range r.Held {
		errs = append(errs, RemoveAddress(a))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if keep {
		r.Held = r.virtual() // a new agent gives them to the loopback before it counts on them
	} else {
		r = record{}
	}
	return r.write(file)
}
