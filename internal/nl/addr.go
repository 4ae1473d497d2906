package nl

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addr is an address of a link as it was when it was read.
type Addr struct {
	Link   int          // index of the link
	Prefix netip.Prefix // the address, with the length of its network
	Scope  Scope
	// IPv6: duplicate address detection is not over or has failed; the address cannot be used
	Tentative bool
	// IPv6: made from a router advertisement, which any host on the link can send
	Advertised bool
}

// Scope is how far away an address or a route is valid (rtnetlink(7)).
type Scope uint8

// The scopes the kernel itself gives.
const (
	ScopeGlobal Scope = unix.RT_SCOPE_UNIVERSE
	ScopeLink   Scope = unix.RT_SCOPE_LINK
)

const (
	unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
	// The kernel sets one of these for addresses that it makes from router advertisements.
	advertised = unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_TEMPORARY
)

func addrFrom(a netlink.Addr) Addr {
	return Addr{Link: a.LinkIndex, Prefix: prefixOf(a.IPNet), Scope: Scope(a.Scope),
		Tentative:  a.Flags&unusable != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0,
		Advertised: a.Flags&advertised != 0 && a.IP.To4() == nil}
}

// Addrs lists the addresses of one link, or of all links when link is 0.
func (c *Conn) Addrs(link int) ([]Addr, error) {
	list, err := read("list addresses", func() ([]netlink.Addr, error) {
		return c.h.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	var addrs []Addr
	for _, a := range list {
		if link == 0 || a.LinkIndex == link {
			addrs = append(addrs, addrFrom(a))
		}
	}
	return addrs, nil
}

// AddAddr gives a link an address. IPv6 addresses skip duplicate address detection and are usable
// at once: Weir gives addresses only where it knows that no other host has them.
func (c *Conn) AddAddr(link int, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: netOf(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	err := change(fmt.Sprintf("add address %s to link %d", p, link),
		func() error { return c.h.AddrAdd(byIndex(link), a) }, unix.EEXIST)
	if err == nil && p.Addr().Is6() {
		c.awaitLocal(p.Addr())
	}
	return err
}

// localWait is how long to wait until the kernel treats an IPv6 address as its own. Some never get
// there: their local route is in a table that packets are not looked up in.
const localWait = 5 * time.Second

// awaitLocal waits until the kernel takes packets for an address. It makes the local route of an
// IPv6 address in a work queue, also without duplicate address detection, and up to then it drops
// them or sends them elsewhere.
func (c *Conn) awaitLocal(a netip.Addr) {
	deadline := time.Now().Add(localWait)
	for ; time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if r, err := c.RouteTo(a); err == nil && r.Type == unix.RTN_LOCAL {
			return
		}
	}
}

// DeleteAddr takes an address away from a link.
func (c *Conn) DeleteAddr(link int, p netip.Prefix) error {
	return change(fmt.Sprintf("delete address %s from link %d", p, link),
		func() error { return c.h.AddrDel(byIndex(link), &netlink.Addr{IPNet: netOf(p)}) },
		unix.EADDRNOTAVAIL)
}
