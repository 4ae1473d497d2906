// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Sources that the kernel's own input path would refuse: addresses of the host, addresses that
// cannot be on a wire, and what rp_filter refuses. The fast path bypasses that input path, so it
// makes the same checks (ip_route_input_slow and fib_validate_source in net/ipv4, ip6_rcv_core and
// ip6_forward in net/ipv6).
#pragma once

#include "translate.h"

// The settings of an interface about sources, map iface_sysctls: net.ipv4.conf.*.accept_local and
// rp_filter. An interface without an entry has none of these.
enum { ACCEPT_LOCAL = 1, RP_STRICT = 2, RP_LOOSE = 4 };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, __u32);
} iface_sysctls SEC(".maps");

// the loopback's index; pkt_type of a packet that the stack looped back
enum { LOOPBACK = 1, PACKET_LOOPBACK = 5 };

// martian: no packet from outside may have these addresses. RFC 1122 3.2.1.3, RFC 4291 2.5.2, 2.5.3
// and 2.7. DHCP asks from 0.0.0.0, and IGMP may; neighbour discovery asks from ::. The rest of 0/8
// is unicast to Linux since 5.3.
static __always_inline int martian(const struct packet *p)
{
	__u32 s = p->src_lo, d = p->dst_lo;

	if (p->version == 4) {
		if (s >> 24 == 127 || d >> 24 == 127 || s >> 28 == 14 || s == 0xffffffff)
			return 1;
		return s ? !d : d && d >> 28 != 14 && d != 0xffffffff;
	}
	if (p->src_hi >> 56 == 0xff || (!p->src_hi && p->src_lo == 1) ||
	    (!p->dst_hi && p->dst_lo <= 1))
		return 1;
	return !(p->src_hi | p->src_lo) && p->dst_hi >> 56 != 0xff;
}

// set_fib_addresses writes the ends of a route look-up: words are those of address_words.
static __always_inline void set_fib_addresses(struct bpf_fib_lookup *r, const struct packet *p,
					      const __be32 *words)
{
	if (p->version == 4) {
		r->family = AF_INET;
		r->flowinfo = p->tos;
		r->src[0] = words[0];
		r->dst[0] = words[1];
		return;
	}
	r->family = AF_INET6;
	__builtin_memcpy(r->src, words, 16);
	__builtin_memcpy(r->dst, words + 4, 16);
}

// source_route asks the kernel for the route from the interface to the packet's source, as its own
// check of sources does. It returns what bpf_fib_lookup does; fwd->route has the interface.
static __always_inline long source_route(struct __sk_buff *skb, const struct packet *p,
					 struct forward *fwd, struct scratch *scratch)
{
	struct bpf_fib_lookup *r = &fwd->route;
	__be32 *words = scratch->new_words;

	__builtin_memset(r, 0, sizeof(*r));
	r->ifindex = p->recv;
	r->tot_len = 1; // 0 asks whether this frame fits the route's interface
	address_words(p, words, p->dst_hi, p->dst_lo, p->src_hi, p->src_lo);
	set_fib_addresses(r, p, words);
	return bpf_fib_lookup(skb, r, sizeof(*r), 0);
}

static __always_inline __u32 iface_sysctl_flags(__u32 ifindex)
{
	__u32 *f = bpf_map_lookup_elem(&iface_sysctls, &ifindex);

	return f ? *f : 0;
}

// may_have_host_source: the packet may have an address of the host as its source, although others
// with the same addresses may not. The stack itself looped it back (multicast), or it is neighbour
// discovery. By the last the host learns that another host has its address.
static __always_inline int may_have_host_source(const struct __sk_buff *skb, const struct packet *p)
{
	return skb->pkt_type == PACKET_LOOPBACK || essential(p);
}

// has_host_source: the packet came from outside and has an address of the host as its source, which
// it may not have. Interfaces that accept local sources are excepted. So are link-local addresses
// of another link and addresses of another VRF.
static __always_inline int has_host_source(struct __sk_buff *skb, const struct packet *p,
					   struct forward *fwd, struct scratch *scratch)
{
	int near = p->version == 6 && is_local6(p->src_hi);

	if (p->recv == LOOPBACK || may_have_host_source(skb, p))
		return 0;
	int here = is_address(p->recv, p->src_hi, p->src_lo);
	if (!here && (near || !is_mine(p->version, p->src_hi, p->src_lo)))
		return 0;
	if (iface_sysctl_flags(p->recv) & ACCEPT_LOCAL)
		return 0;
	if (here) // whatever the route is, which costs more than all else
		return 1;
	long r = source_route(skb, p, fwd, scratch);
	return r != FIB_SUCCESS && r != FIB_NO_NEIGH;
}

// passes_rp_filter: the route to the source shows that the stack would accept the packet, which
// goes to a pod, from this interface. If not, the stack decides: rp_filter knows all next hops of a
// route, marks and IPsec. The stack refuses to forward link-local sources, and answers.
static __always_inline int passes_rp_filter(struct __sk_buff *skb, const struct packet *p,
					    struct forward *fwd, struct scratch *scratch,
					    __u32 flags)
{
	if (p->version == 6)
		return !is_local6(p->src_hi);
	if (likely(!(flags & (RP_STRICT | RP_LOOSE))))
		return 1;
	long r = source_route(skb, p, fwd, scratch);
	if (r != FIB_SUCCESS && r != FIB_NO_NEIGH)
		return 0;
	return flags & RP_LOOSE || fwd->route.ifindex == p->recv;
}
