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
// them. It also sets whether the host has routing rules that the fast path does not respect. While
// there is either, packets between pods and NICs go up the stack. Those from one pod to another do
// while a policy may match them. The programs ask the policies themselves about what meets them
// nowhere else (bpf/lib/ipsec.h).
func (e *Engine) SetStack(routing bool, policies []Policy) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	asked, many := askedOf(policies)
	before := e.forwarding
	if e.asked == nil || !slices.Equal(e.asked, asked) {
		half, err := e.writePoliciesLocked(asked)
		if err != nil {
			return err
		}
		e.forwarding.Policies = half | uint32(len(asked))
	}
	e.routing, e.policies, e.stackKnown = routing, slices.Clone(policies), true
	if before.Stack == e.stackLocked() && before.Policies == e.forwarding.Policies {
		e.asked = asked
		return many
	}
	if err := e.putForwardingLocked(); err != nil { // the next call tries again
		e.forwarding.Stack, e.forwarding.Policies = before.Stack, before.Policies
		e.asked = nil
		return errors.Join(many, err)
	}
	e.asked = asked
	return many
}

// errManyPolicies: the programs have no space for all policies.
var errManyPolicies = fmt.Errorf("more than %d IPsec policies: what Weir translates, and its "+
	"answers, do not leave", maxPolicies)

// protectAll protects the packets of both families.
var protectAll = []Policy{{Src: netip.MustParsePrefix("0.0.0.0/0"), Protects: true,
	Dst: netip.MustParsePrefix("0.0.0.0/0")}, {Src: netip.MustParsePrefix("::/0"),
	Dst: netip.MustParsePrefix("::/0"), Protects: true}}

// askedOf returns the policies that the programs ask, none if none protects anything. Of too many
// the last are taken for policies that protect everything that leaves.
func askedOf(policies []Policy) (asked []Policy, many error) {
	if !slices.ContainsFunc(policies, func(p Policy) bool { return p.Protects }) {
		return []Policy{}, nil
	}
	if len(policies) > maxPolicies {
		return slices.Concat(policies[:maxPolicies-len(protectAll)], protectAll), errManyPolicies
	}
	return slices.Clone(policies), nil
}

// writePoliciesLocked writes policies into the half of the map that is not in force, and returns
// what names that half. No packet reads it: those that did, when it was in force, are waited for.
func (e *Engine) writePoliciesLocked(policies []Policy) (half uint32, err error) {
	if len(policies) == 0 {
		return 0, nil
	}
	if err := e.waitForReadersLocked(); err != nil {
		return 0, fmt.Errorf("wait for packets that read earlier IPsec policies: %w", err)
	}
	half = ^e.forwarding.Policies & policiesSecond
	keys := make([]uint32, len(policies))
	for i := range keys {
		keys[i] = uint32(i) + bit(half != 0)*maxPolicies
	}
	if _, err := e.objects.Policies.BatchUpdate(keys, policyTable(policies), nil); err != nil {
		return 0, fmt.Errorf("write the IPsec policies to the kernel: %w", err)
	}
	return half, nil
}

// waitForReadersLocked is waitForPackets with the rules in force. Without any no program reads.
func (e *Engine) waitForReadersLocked() error {
	m, err := e.imageLocked()
	if m == nil {
		return err
	}
	return errors.Join(e.waitForPackets(m), m.Close())
}

// policyTable returns policies as the programs search them: struct policy of bpf/lib/ipsec.h.
func policyTable(policies []Policy) []weirPolicy {
	type masks struct {
		version  uint8
		src, dst weirAddress
	}
	table := make([]weirPolicy, len(policies))
	groups := map[masks][]uint16{} // places of the policies, in order
	var order []masks
	for i, p := range policies {
		w := policyWords(p)
		w.First, w.Next, w.Group = noPolicy, noPolicy, noPolicy
		table[i] = w
		g := masks{w.Version, w.SrcMask, w.DstMask}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], uint16(i))
	}
	buckets, before := uint16(0), &weirPolicy{}
	for _, g := range order {
		places := groups[g]
		first := &table[places[0]]
		before.Group, before = places[0], first
		first.Bucket, first.Buckets = buckets, uint16(len(places))
		buckets += first.Buckets
		for _, at := range slices.Backward(places) {
			x := &table[at]
			b := &table[bucketOf(first, x)].First
			x.Next, *b = *b, at
		}
	}
	return table
}

// bucketOf returns in which bucket of a group a policy is: policy_bucket of bpf/lib/ipsec.h.
func bucketOf(group, x *weirPolicy) uint32 {
	h := uint64(0)
	for _, word := range []uint64{x.Src.Hi, x.Src.Lo, x.Dst.Hi, x.Dst.Lo} {
		h = ((h ^ h>>32) + word) * 0x9e3779b97f4a7c15
	}
	return uint32(group.Bucket) + uint32((h>>32)*uint64(group.Buckets)>>32)
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
