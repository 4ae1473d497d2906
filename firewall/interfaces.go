package firewall

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// DiffInterfaces compares two lists of interfaces, each in order of index. changed are the
// interfaces in now that are new or differ from old, and gone those in old that are not in now.
func DiffInterfaces(old, now []Interface) (changed, gone []Interface) {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].Index < now[0].Index:
			gone, old = append(gone, old[0]), old[1:]
		case len(old) == 0 || now[0].Index < old[0].Index:
			changed, now = append(changed, now[0]), now[1:]
		default:
			if !old[0].Equal(now[0]) {
				changed = append(changed, now[0])
			}
			old, now = old[1:], now[1:]
		}
	}
	return changed, gone
}

// CompareInterfaces orders interfaces by their index, for slices.SortFunc.
func CompareInterfaces(a, b Interface) int { return cmp.Compare(a.Index, b.Index) }

// UsesDHCP reports whether the host may have a DHCP client on the interface: it is neither a pod's
// nor the tunnel.
func (i Interface) UsesDHCP() bool { return !strings.HasPrefix(i.Name, "pod:") && !i.Tunnel }

// HasAddress4 reports whether the interface has an IPv4 address other than link-local ones, which
// hosts assign themselves while they wait for a lease (RFC 3927).
func (i Interface) HasAddress4() bool {
	return slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool {
		return p.Addr().Is4() && !p.Addr().IsLinkLocalUnicast()
	})
}

// Equal reports whether i and o are the same interface with the same settings.
func (i Interface) Equal(o Interface) bool {
	return i.Index == o.Index && i.Name == o.Name && slices.Equal(i.Addrs, o.Addrs) &&
		i.AcceptLocal == o.AcceptLocal && i.ReversePath == o.ReversePath && i.Tunnel == o.Tunnel &&
		i.Router6 == o.Router6 && slices.Equal(i.Local, o.Local)
}

// Mine returns the addresses at which the host takes packets because of the interface. These are
// its own, those that all routers of its networks have beside them (RFC 4291 section 2.6.1), and
// what local routes lead to. A network of two addresses has none of the second (RFC 6164).
func (i Interface) Mine() []netip.Prefix {
	all := make([]netip.Prefix, 0, 2*len(i.Addrs)+len(i.Local))
	for _, p := range i.Addrs {
		all = append(all, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		if router, is := i.anycast(p); is {
			all = append(all, netip.PrefixFrom(router, router.BitLen()))
		}
	}
	for _, p := range i.Local {
		all = append(all, p.Masked())
	}
	return all
}

// IsMine reports whether an address is one of Mine.
func (i Interface) IsMine(a netip.Addr) bool {
	for _, p := range i.Addrs {
		if router, is := i.anycast(p); p.Addr() == a || is && router == a {
			return true
		}
	}
	return slices.ContainsFunc(i.Local, func(p netip.Prefix) bool { return p.Contains(a) })
}

// anycast returns the address that all routers of a network of the interface have, if the host is
// one.
func (i Interface) anycast(p netip.Prefix) (a netip.Addr, is bool) {
	return p.Masked().Addr(), i.Router6 && p.Addr().Is6() && p.Bits() <= 126
}
