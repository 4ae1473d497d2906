package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNotAllowed means that a client must not reach the address that it requested.
var ErrNotAllowed = errors.New("proxy: not allowed")

// remoteClientKey marks the context of a dial for a client of another host.
type remoteClientKey struct{}

// withClient marks ctx if the client must not reach what only this host can reach.
func (s *Server) withClient(ctx context.Context, c net.Conn) context.Context {
	if s.LocalTargets || isLocal(c.RemoteAddr()) {
		return ctx
	}
	return context.WithValue(ctx, remoteClientKey{}, true)
}

// isLocal reports whether a client is on this host.
func isLocal(a net.Addr) bool {
	if _, ok := a.(*net.UnixAddr); ok {
		return true
	}
	return addrOf(a).IsLoopback()
}

// ControlContext returns the function for the field of that name in the dialer behind Server.Dial.
// The function refuses a socket by which a client of another host would reach this host, its link
// or a cloud's metadata service. This host has loopback, unspecified and own addresses, and its
// link has link-local, multicast and, on Linux, broadcast addresses. It checks the address that is
// dialed, so a name cannot hide it.
//
// toHost reports whether the kernel's routes lead to this host for an address, which it need not
// have as its own. After an error of toHost the address is refused. Without it (nil), such
// addresses are not recognised.
func ControlContext(toHost func(netip.Addr) (bool, error)) func(ctx context.Context, network,
	address string, c syscall.RawConn) error {
	return func(ctx context.Context, network, address string, c syscall.RawConn) error {
		return control(ctx, network, address, c, toHost)
	}
}

func control(ctx context.Context, network, address string, c syscall.RawConn,
	toHost func(netip.Addr) (bool, error)) error {
	if ctx.Value(remoteClientKey{}) == nil {
		return nil
	}
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is not an address", ErrNotAllowed, address)
	}
	why := refusalReason(a.Addr())
	if why == "" && toHost != nil {
		is, err := toHost(a.Addr().WithZone("").Unmap())
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrNotAllowed, a.Addr(), err)
		}
		if is {
			why = "an address of this host"
		}
	}
	if why != "" {
		return fmt.Errorf("%w: %s is %s, and the client is on another host", ErrNotAllowed,
			a.Addr(), why)
	}
	if !strings.HasPrefix(network, "udp") {
		return nil
	}
	var failed error
	err = c.Control(func(fd uintptr) { failed = forbidBroadcast(fd) })
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("%w: cannot forbid broadcasts: %w", ErrNotAllowed, err)
	}
	return nil
}

// metadata are the metadata services of clouds that do not have a link-local address: Amazon's,
// Oracle's, Google's and Scaleway's over IPv6, Alibaba's, and Azure's WireServer.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:c1::a9fe:a9fe"),
	netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("fd00:42::42"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"),
}

// linkLocalMetadata are the metadata services with a link-local address, of which a NAT64 may have
// one on its link: of all clouds, and Amazon's for containers.
var linkLocalMetadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"),
	netip.MustParseAddr("169.254.170.23"),
}

// nat64 is the well-known prefix of RFC 6052. Its addresses contain an IPv4 address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// translatesToMetadata reports whether a NAT64 with a prefix of its own could translate an address
// to that of a metadata service. The prefix is not known, so that all lengths of RFC 6052 section
// 2.2 count. Another address has these 32 bits there by chance only.
func translatesToMetadata(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	for _, bits := range []int{32, 40, 48, 56, 64, 96} {
		embedded := slices.Clone(b[bits/8:])
		if bits < 96 { // the octet from bit 64 on is between its parts, and zero
			embedded = slices.Delete(embedded, 8-bits/8, 9-bits/8)
		}
		v4 := netip.AddrFrom4([4]byte(embedded))
		if slices.Contains(metadata, v4) || slices.Contains(linkLocalMetadata, v4) {
			return true
		}
	}
	return false
}

// refusalReason explains why a client of another host must not reach an address. It is "" for an
// address that such a client may reach.
func refusalReason(a netip.Addr) string {
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
		return "not a unicast address"
	case slices.Contains(metadata, a), translatesToMetadata(a):
		return "a metadata service"
	case hostAddrs.has(a):
		return "an address of this host"
	}
	return ""
}

// hostAddrs are this host's addresses.
var hostAddrs = addrCache{list: net.InterfaceAddrs}

// addrCache reads the addresses of this host from the kernel at most once a second.
type addrCache struct {
	list func() ([]net.Addr, error)

	mu    sync.Mutex
	read  time.Time    // guarded by mu
	addrs []netip.Addr // guarded by mu
}

// anycastOf returns the subnet-router anycast address of a network (RFC 4291 section 2.6.1), which
// a host that forwards has too, except on a point-to-point link (RFC 6164).
func anycastOf(p *net.IPNet) (netip.Addr, bool) {
	if ones, bits := p.Mask.Size(); bits != 128 || ones > 126 {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(p.IP.Mask(p.Mask))
}

// has reports whether a is an address of this host. If the kernel returns an error, it reports true
// for every address.
func (o *addrCache) has(a netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.read) > time.Second {
		list, err := o.list()
		if err != nil {
			return true
		}
		o.addrs, o.read = o.addrs[:0], time.Now()
		for _, n := range list {
			if p, ok := n.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(p.IP); ok {
					o.addrs = append(o.addrs, addr.Unmap())
				}
				if a, ok := anycastOf(p); ok {
					o.addrs = append(o.addrs, a)
				}
			}
		}
	}
	return slices.Contains(o.addrs, a)
}
