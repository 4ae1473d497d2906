package kernel

import (
	"net/netip"
	"slices"
)

// Policy says which packets an IPsec policy of the host may match.
type Policy struct{ Src, Dst netip.Prefix }

// SetStack sets the IPsec policies for forwarded packets, and whether the host has routing rules
// that the fast path does not respect. While there is either, packets between pods and NICs go up
// the stack. Those from one pod to another do while a policy may match them.
func (e *Engine) SetStack(routing bool, policies []Policy) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.routing, e.policies, e.stackKnown = routing, slices.Clone(policies), true
	before := e.forwarding.Stack
	if before == e.stackLocked() {
		return nil
	}
	err := e.putForwardingLocked()
	if err != nil {
		e.forwarding.Stack = before // the next call tries again
	}
	return err
}

// stackLocked returns which packets go up the stack. It depends on the addresses of pods, some of
// which are in no range (external IPAM), so every change of pods asks again.
func (e *Engine) stackLocked() uint32 {
	if len(e.policies) == 0 {
		return bit(e.routing) * stackNICs
	}
	var pods []netip.Addr
	for _, v := range e.endpoints {
		for _, a := range v.Addr[:v.Count] {
			pods = append(pods, a.addr())
		}
	}
	slices.SortFunc(pods, netip.Addr.Compare)
	between := slices.ContainsFunc(e.policies, func(p Policy) bool {
		return holdsAny(p.Src, pods) && holdsAny(p.Dst, pods)
	})
	return stackNICs | bit(between)*stackPods
}

// holdsAny reports whether a prefix contains one of the sorted addresses.
func holdsAny(p netip.Prefix, sorted []netip.Addr) bool {
	at, _ := slices.BinarySearchFunc(sorted, p.Masked().Addr(), netip.Addr.Compare)
	return at < len(sorted) && p.Contains(sorted[at])
}
