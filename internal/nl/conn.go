package nl

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// requestTimeout is how long one request may take. Tearing down many namespaces holds the kernel's
// rtnl lock for seconds.
const requestTimeout = 60 * time.Second

// Conn is a connection to rtnetlink in one network namespace. It may be used by several goroutines
// at once.
type Conn struct {
	h *netlink.Handle
}

// Open connects to rtnetlink in ns, or in the namespace of the calling thread when ns is nil.
func Open(ns *NS) (*Conn, error) { return OpenWithin(ns, requestTimeout) }

// OpenWithin is Open with a bound for how long one request may take, for callers that cannot wait
// as long as others may hold the kernel's lock.
func OpenWithin(ns *NS, most time.Duration) (*Conn, error) {
	h, err := open("netlink", ns, unix.NETLINK_ROUTE, most)
	if err != nil {
		return nil, err
	}
	return &Conn{h: h}, nil
}

// open connects to a family of netlink in ns, or in the namespace of the calling thread when ns is
// nil.
func open(what string, ns *NS, family int, most time.Duration) (*netlink.Handle, error) {
	at := netns.None()
	if ns != nil {
		at = netns.NsHandle(ns.Fd())
	}
	h, err := netlink.NewHandleAt(at, family)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", what, err)
	}
	if err := h.SetSocketTimeout(most); err != nil {
		h.Close()
		return nil, fmt.Errorf("open %s: %w", what, err)
	}
	return h, nil
}

// Close closes the connection. Requests under way fail.
func (c *Conn) Close() { c.h.Close() }

// addrOf turns the library's address into ours; nil becomes the zero Addr.
func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// prefixOf turns the library's network into ours; nil becomes the zero Prefix.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ones, bits := n.Mask.Size()
	if bits == 0 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addrOf(n.IP), ones)
}

// ipOf turns our address into the library's; the zero Addr becomes nil.
func ipOf(a netip.Addr) net.IP {
	if !a.IsValid() {
		return nil
	}
	return a.AsSlice()
}

// netOf turns our prefix into the library's, host bits kept; the zero Prefix becomes nil.
func netOf(p netip.Prefix) *net.IPNet {
	if !p.IsValid() {
		return nil
	}
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// familyOf returns the address family of a, AF_UNSPEC for the zero Addr.
func familyOf(a netip.Addr) int {
	switch {
	case a.Is4():
		return unix.AF_INET
	case a.Is6():
		return unix.AF_INET6
	}
	return unix.AF_UNSPEC
}

// numeric reports whether host is an address and not a name.
func numeric(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
