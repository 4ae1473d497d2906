package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// ErrNotAllowed says that a client asked for an address that it must not reach.
var ErrNotAllowed = errors.New("proxy: not allowed")

// remoteKey marks the context of a dial for a client of another host.
type remoteKey struct{}

// withClient marks ctx when the client must not reach what only this host reaches.
func (s *Server) withClient(ctx context.Context, c net.Conn) context.Context {
	if s.LocalTargets || isLocal(c.RemoteAddr()) {
		return ctx
	}
	return context.WithValue(ctx, remoteKey{}, true)
}

// isLocal reports whether a client is on this host.
func isLocal(a net.Addr) bool {
	if _, ok := a.(*net.UnixAddr); ok {
		return true
	}
	return addrOf(a).IsLoopback()
}

// ControlContext belongs into the dialer behind Server.Dial. It refuses a socket that a client of
// another host would use to reach this host itself (loopback, unspecified and its own addresses),
// its link (link-local and multicast addresses) or a cloud's metadata service. It looks at the
// address that is dialed, so a name may not hide one.
func ControlContext(ctx context.Context, _, address string, _ syscall.RawConn) error {
	if ctx.Value(remoteKey{}) == nil {
		return nil
	}
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is no address", ErrNotAllowed, address)
	}
	if why := inward(a.Addr()); why != "" {
		return fmt.Errorf("%w: %s is %s, and the client is on another host", ErrNotAllowed,
			a.Addr(), why)
	}
	return nil
}

// metadata are the metadata services of clouds that are not at a link-local address: Amazon's and
// Oracle's over IPv6, Alibaba's.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:c1::a9fe:a9fe"),
	netip.MustParseAddr("100.100.100.200"),
}

// nat64 is the well-known prefix of RFC 6052: an IPv4 address is behind it.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// inward says why an address is this host's own business; "" if it is not.
func inward(a netip.Addr) string {
	a = a.WithZone("").Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case a.IsLoopback(), a.Is4() && a.As4()[0] == 0, a.IsUnspecified():
		return "this host's loopback"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "no unicast address"
	case slices.Contains(metadata, a):
		return "a metadata service"
	case own.has(a):
		return "an address of this host"
	}
	return ""
}

// own are this host's addresses.
var own ownAddrs

// ownAddrs asks the kernel at most once a second.
type ownAddrs struct {
	mu    sync.Mutex
	asked time.Time    // guarded by mu
	addrs []netip.Addr // guarded by mu
}

// has reports whether a is an address of this host. When the kernel does not tell, every address
// may be.
func (o *ownAddrs) has(a netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.asked) > time.Second {
		list, err := net.InterfaceAddrs()
		if err != nil {
			return true
		}
		o.addrs, o.asked = o.addrs[:0], time.Now()
		for _, n := range list {
			if p, ok := n.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(p.IP); ok {
					o.addrs = append(o.addrs, addr.Unmap())
				}
			}
		}
	}
	return slices.Contains(o.addrs, a)
}
