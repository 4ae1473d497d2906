package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/nl"
)

// Policy is an IPsec policy of the host, as the kernel lists it.
type Policy = nl.Policy

// SetStack sets the IPsec policies for forwarded packets, in the order in which the kernel asks
// them, and whether the host has routing rules that the fast path does not respect. While there is
// either, packets between pods and NICs go up the stack. Those from one pod to another do while a
// policy may match them. The programs ask the policies themselves about what meets them nowhere
// else (bpf/lib/ipsec.h).
func (e *Engine) SetStack(routing bool, policies []Policy) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	many := e.putPoliciesLocked(policies)
	if many != nil && !errors.Is(many, errManyPolicies) {
		return many
	}
	e.routing, e.policies, e.stackKnown = routing, slices.Clone(policies), true
	before := e.forwarding
	e.forwarding.Policies = uint32(len(e.asked))
	if before.Stack == e.stackLocked() && before.Policies == e.forwarding.Policies {
		return many
	}
	err := e.putForwardingLocked()
	if err != nil { // the next call tries again
		e.forwarding.Stack, e.forwarding.Policies = before.Stack, before.Policies
	}
	return errors.Join(many, err)
}

// errManyPolicies: the programs have no space for all policies.
var errManyPolicies = fmt.Errorf("more than %d IPsec policies: what Weir translates, and its "+
	"answers, do not leave", maxPolicies)

// protectAll protects the packets of both families.
var protectAll = []Policy{{Src: netip.MustParsePrefix("0.0.0.0/0"), Protects: true,
	Dst: netip.MustParsePrefix("0.0.0.0/0")}, {Src: netip.MustParsePrefix("::/0"),
	Dst: netip.MustParsePrefix("::/0"), Protects: true}}

// putPoliciesLocked writes the policies that the programs ask, none if none protects anything. Of
// too many the last are taken for policies that protect everything that leaves. A packet in between
// may miss one, as it does before the agent knows of it.
func (e *Engine) putPoliciesLocked(policies []Policy) (many error) {
	if !slices.ContainsFunc(policies, func(p Policy) bool { return p.Protects }) {
		policies = nil
	}
	if len(policies) > maxPolicies {
		many = errManyPolicies
		policies = slices.Concat(policies[:maxPolicies-len(protectAll)], protectAll)
	}
	for i, p := range policies {
		if i < len(e.asked) && e.asked[i] == p {
			continue
		}
		e.asked = e.asked[:min(i, len(e.asked))]
		if err := e.objects.Policies.Put(uint32(i), policyWords(p)); err != nil {
			return fmt.Errorf("write the IPsec policies to the kernel: %w", err)
		}
		e.asked = append(e.asked, p)
	}
	e.asked = e.asked[:len(policies)]
	return many
}

// policyWords returns a policy as the programs read it.
func policyWords(p Policy) (w weirPolicy) {
	w.Src, w.SrcMask = wordsOf(p.Src.Masked().Addr()), maskOf(p.Src)
	w.Dst, w.DstMask = wordsOf(p.Dst.Masked().Addr()), maskOf(p.Dst)
	w.Ports, w.PortsMask, w.Mark, w.MarkMask = p.Ports, p.PortsMask, p.Mark, p.MarkMask
	w.Version, w.Proto = 6, p.Proto
	if p.Src.Addr().Is4() {
		w.Version = 4
	}
	w.Flags = policyOut
	if p.Forward {
		w.Flags = policyForward
	}
	if p.Protects {
		w.Flags |= policyProtects
	}
	return w
}

// maskOf returns the bits of an address that a prefix has.
func maskOf(p netip.Prefix) (w weirAddress) {
	bits := uint(p.Bits() + 128 - p.Addr().BitLen())
	w.Hi = ^(^uint64(0) >> min(bits, 64))
	w.Lo = ^(^uint64(0) >> (max(bits, 64) - 64))
	return w
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
