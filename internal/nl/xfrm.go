package nl

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Policy is an IPsec policy for packets that leave, or with Forward for those that come in and are
// forwarded.
type Policy struct {
	Src, Dst netip.Prefix
	Forward  bool
	// It wants its packets encrypted, or refuses them. What others match leaves in the clear.
	Protects bool
	Proto    uint8 // 0 for any
	// The bits of ports that it compares: source<<16 | destination, of ICMP type and code.
	Ports, PortsMask uint32
	Mark, MarkMask   uint32 // the bits of the packet's mark that it compares
}

// The messages about the policy for packets that no other one matches, and what it says:
// include/uapi/linux/xfrm.h.
const (
	xfrmGetDefault = 0x28
	xfrmBlock      = 1
)

// The directions of policies: XFRM_POLICY_OUT and XFRM_POLICY_FWD. The action XFRM_POLICY_BLOCK.
const (
	xfrmOut         = 1
	xfrmForward     = 2
	xfrmActionBlock = 1
)

// policyDefault is struct xfrm_userpolicy_default: in, fwd, out.
type policyDefault [3]byte

func (p policyDefault) Len() int { return len(p) }

// Serialize implements nl.NetlinkRequestData.
func (p policyDefault) Serialize() []byte { return p[:] }

// everything returns policies that protect all packets of both families.
func everything(forward bool) []Policy {
	four := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	six := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	return []Policy{{Src: four, Dst: four, Forward: forward, Protects: true},
		{Src: six, Dst: six, Forward: forward, Protects: true}}
}

// ForwardPolicies lists the IPsec policies that the kernel asks about packets that it forwards, in
// the namespace of the calling thread. These are those of the directions fwd and out, in the order
// in which it asks. Of a direction the first that matches decides. A default policy that blocks
// protects everything. A kernel without IPsec has none.
//
// Policies with an interface id are left out: the kernel asks them only about packets of an xfrm
// interface. That has no Ethernet headers, so packets of pods go through the stack there.
func ForwardPolicies() ([]Policy, error) {
	all, err := read("list the IPsec policies", forwardPolicies)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	return all, err
}

func forwardPolicies() (all []Policy, err error) {
	r := nl.NewNetlinkRequest(xfrmGetDefault, 0)
	r.AddData(policyDefault{})
	answer, err := r.Execute(unix.NETLINK_XFRM, xfrmGetDefault)
	if err != nil {
		return nil, err
	}
	var last []Policy
	for _, m := range answer {
		short := len(m) < len(policyDefault{})
		if short || m[1] == xfrmBlock {
			last = append(last, everything(true)...)
		}
		if short || m[2] == xfrmBlock {
			last = append(last, everything(false)...)
		}
	}
	r = nl.NewNetlinkRequest(nl.XFRM_MSG_GETPOLICY, unix.NLM_F_DUMP)
	if answer, err = r.Execute(unix.NETLINK_XFRM, nl.XFRM_MSG_NEWPOLICY); err != nil {
		return nil, err
	}
	var listed []listedPolicy
	for _, m := range answer {
		if len(m) < nl.SizeofXfrmUserpolicyInfo {
			return nil, errors.New("an IPsec policy is too short")
		}
		p := nl.DeserializeXfrmUserpolicyInfo(m)
		if p.Dir != xfrmOut && p.Dir != xfrmForward { // those of sockets follow
			continue
		}
		more, err := readPolicy(p, m[nl.SizeofXfrmUserpolicyInfo:])
		if err != nil {
			return nil, err
		}
		listed = append(listed, more...)
	}
	// Of equal priority the oldest decides, but the list has no ages. Those that protect come
	// first: no packet is taken for one that may leave in the clear.
	slices.SortStableFunc(listed,
		func(a, b listedPolicy) int { return cmp.Compare(a.rank, b.rank) })
	for _, p := range listed {
		all = append(all, p.Policy)
	}
	return append(all, last...), nil
}

// A listedPolicy is a Policy with its place in the order.
type listedPolicy struct {
	Policy
	rank uint64
}

// readPolicy returns a policy with its attributes.
func readPolicy(p *nl.XfrmUserpolicyInfo, attributes []byte) (all []listedPolicy, err error) {
	list, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return nil, err
	}
	x := Policy{Forward: p.Dir == xfrmForward, Protects: p.Action == xfrmActionBlock,
		Proto:     p.Sel.Proto,
		Ports:     ports(p.Sel.Sport, p.Sel.Dport),
		PortsMask: ports(p.Sel.SportMask, p.Sel.DportMask)}
	for _, a := range list {
		switch {
		case a.Attr.Type == nl.XFRMA_TMPL:
			x.Protects = x.Protects || len(a.Value) > 0
		case a.Attr.Type == nl.XFRMA_MARK && len(a.Value) >= 8:
			x.Mark = binary.NativeEndian.Uint32(a.Value)
			x.MarkMask = binary.NativeEndian.Uint32(a.Value[4:])
		case a.Attr.Type == nl.XFRMA_IF_ID && len(a.Value) >= 4:
			if binary.NativeEndian.Uint32(a.Value) != 0 {
				return nil, nil
			}
		}
	}
	// What it says of interfaces and users is unknown here: it may let nothing else pass.
	if !x.Protects && (p.Sel.Ifindex != 0 || p.Sel.User != 0) {
		return nil, nil
	}
	rank := uint64(p.Priority) << 1
	if !x.Protects {
		rank++
	}
	for _, s := range selected(&p.Sel) {
		x.Src, x.Dst = s.Src, s.Dst
		all = append(all, listedPolicy{x, rank})
	}
	return all, nil
}

// ports returns two ports in the order of the wire.
func ports(src, dst uint16) uint32 { return uint32(nl.Swap16(src))<<16 | uint32(nl.Swap16(dst)) }

// selected returns the addresses that a selector matches, at least.
func selected(s *nl.XfrmSelector) []Policy {
	prefix := func(a nl.XfrmAddress, bits uint8) netip.Prefix {
		if s.Family == unix.AF_INET {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte(a[:4])), int(bits))
		}
		return netip.PrefixFrom(netip.AddrFrom16(a), int(bits))
	}
	p := Policy{Src: prefix(s.Saddr, s.PrefixlenS), Dst: prefix(s.Daddr, s.PrefixlenD)}
	if s.Family != unix.AF_INET && s.Family != unix.AF_INET6 || !p.Src.IsValid() ||
		!p.Dst.IsValid() {
		return everything(false)
	}
	return []Policy{p}
}

// WatchPolicies calls changed once at the beginning, and then whenever IPsec policies in the
// namespace of the calling thread may have changed. It does so at most about twenty times a second,
// until ctx ends. The kernel does not report here when the lifetime of a policy ends.
func WatchPolicies(ctx context.Context, changed func()) error {
	err := watchGroups(ctx, "watch the IPsec policies", changed, unix.NETLINK_XFRM,
		nl.XFRMNLGRP_POLICY)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}
