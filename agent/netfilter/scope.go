package netfilter

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/firewall"
)

// Scope says which packets matter: those that pods send or get without the stack, if netfilter
// does not translate them.
type Scope struct {
	Pods       []netip.Prefix // the ranges of the node's pods
	Interfaces []firewall.Interface
	// Guards reports whether the interface of a name has Weir's hooks, without which nothing
	// bypasses the stack there.
	Guards func(name string) bool
	// Masquerade: the node gives what pods send to others the address of the host itself.
	Masquerade bool
}

// conditions are what a rule of netfilter asks of a packet, as far as it is understood: a rule that
// asks more matches less.
type conditions struct {
	src, dst netip.Prefix // invalid: any
	in, out  string       // exact names of interfaces, "" for any
	local    bool         // the destination is an address of the host

	// What counts only where a rule has to be understood whole:
	inBegins, outBegins string // how names of interfaces begin, "" for any
	family              uint8  // unix.NFPROTO_IPV4 or another, 0 for any
	more                bool   // it asks for something else, too
}

// misses reports whether a packet that matters cannot match.
func (s *Scope) misses(c *conditions) bool {
	switch {
	case c.local, s.own(c.dst), s.own(c.src):
		return true
	case s.unguarded(c.in), s.unguarded(c.out):
		return true
	case !c.src.IsValid() || s.overlapsPods(c.src):
		return false
	}
	// It does not come from a pod. It may go to one, but not by an interface of ours if its source
	// is a network of another program.
	return c.dst.IsValid() && !s.overlapsPods(c.dst) || s.foreign(c.src)
}

func (s *Scope) overlapsPods(p netip.Prefix) bool {
	return slices.ContainsFunc(s.Pods, p.Overlaps)
}

// own: the prefix is one address of the host.
func (s *Scope) own(p netip.Prefix) bool {
	return p.IsValid() && p.IsSingleIP() && slices.ContainsFunc(s.Interfaces,
		func(i firewall.Interface) bool {
			return slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool {
				return a.Addr() == p.Addr()
			})
		})
}

// unguarded: an interface has a name, and no hooks. The pods' own begin with weir.
func (s *Scope) unguarded(name string) bool {
	return name != "" && !strings.HasPrefix(name, "weir") && !s.Guards(name)
}

// foreign: a prefix is part of the network of an interface without hooks.
func (s *Scope) foreign(p netip.Prefix) bool {
	return slices.ContainsFunc(s.Interfaces, func(i firewall.Interface) bool {
		return s.unguarded(i.Name) && slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool {
			return a.Bits() > 0 && a.Bits() <= p.Bits() && a.Masked().Contains(p.Addr())
		})
	})
}
