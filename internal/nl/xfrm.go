package nl

import (
	"context"
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Policy is an IPsec policy, as far as the addresses go that it matches.
type Policy struct{ Src, Dst netip.Prefix }

// The messages about the policy for packets that no other one matches, and what it says:
// include/uapi/linux/xfrm.h.
const (
	xfrmGetDefault = 0x28
	xfrmBlock      = 1
)

// The directions of policies: XFRM_POLICY_OUT and XFRM_POLICY_FWD.
const (
	xfrmOut     = 1
	xfrmForward = 2
)

// policyDefault is struct xfrm_userpolicy_default: in, fwd, out.
type policyDefault [3]byte

func (p policyDefault) Len() int { return len(p) }

// Serialize implements nl.NetlinkRequestData.
func (p policyDefault) Serialize() []byte { return p[:] }

// everything matches the packets of both families.
var everything = []Policy{
	{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
	{netip.PrefixFrom(netip.IPv6Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
}

// ForwardPolicies lists the IPsec policies that the kernel asks about packets that it forwards, in
// the namespace of the calling thread: those of the directions fwd and out. A default policy that
// blocks matches everything. A kernel without IPsec has none.
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
	for _, m := range answer {
		if len(m) < len(policyDefault{}) || m[1] == xfrmBlock || m[2] == xfrmBlock {
			all = append(all, everything...)
		}
	}
	r = nl.NewNetlinkRequest(nl.XFRM_MSG_GETPOLICY, unix.NLM_F_DUMP)
	if answer, err = r.Execute(unix.NETLINK_XFRM, nl.XFRM_MSG_NEWPOLICY); err != nil {
		return nil, err
	}
	for _, m := range answer {
		if len(m) < nl.SizeofXfrmUserpolicyInfo {
			all = append(all, everything...)
			continue
		}
		p := nl.DeserializeXfrmUserpolicyInfo(m)
		if p.Dir == xfrmOut || p.Dir == xfrmForward { // those of sockets follow
			all = append(all, selected(&p.Sel)...)
		}
	}
	return all, nil
}

// selected returns what a selector matches, at least.
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
		return everything
	}
	return []Policy{p}
}

// WatchPolicies calls changed once at the beginning and then whenever IPsec policies in the
// namespace of the calling thread may have changed, at most about twenty times a second, until ctx
// ends. The kernel does not report here when the lifetime of a policy ends.
func WatchPolicies(ctx context.Context, changed func()) error {
	err := watchGroups(ctx, "watch the IPsec policies", changed, unix.NETLINK_XFRM,
		nl.XFRMNLGRP_POLICY)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}
