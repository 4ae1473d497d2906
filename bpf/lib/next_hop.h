// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Rules with fwd, docs/design/0004-containers.md section 7: what they let pass goes to their next
// hop, or to a socket of the host.
#pragma once

#include "forward.h"

// A next hop as the agent has resolved it: the address that gets the packet, the interface, and the
// route's own MTU, 0 if it has none. Without a route, ifindex is 0.
struct hop {
	struct address via;
	__u32 ifindex;
	__u32 mtu;
};

// By the address in the rule. The map can hold those of two Programs: one in force, and one that
// replaces it.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * MAX_RULES);
	__type(key, struct address);
	__type(value, struct hop);
} hops SEC(".maps");

enum { TCP_ESTABLISHED = 1, TCP_TIME_WAIT = 6 }; // include/net/tcp_states.h

enum hop_kind { HOP_NONE, HOP_OWN, HOP_OTHER };

// own_hop: a next hop is the host itself.
static __always_inline int own_hop(const struct address *a)
{
	if (!a->hi && (a->lo == 1 || a->lo >> 24 == ((__u64)MAPPED << 8 | 127)))
		return 1;
	return is_mine(!a->hi && a->lo >> 32 == MAPPED ? 4 : 6, a->hi, a->lo);
}

// find_hop finds the next hop of the rule that has let the packet pass: enum hop_kind.
__noinline int find_hop(struct cpu *c)
{
	if (!c)
		return 0;
	const struct walk *walk = &c->walk;
	struct forward *fwd = &c->fwd;
	void *image = image_of(walk);
	struct header *h = image ? (struct header *)row_in(image, 0) : NULL;
	struct span *s = h && walk->next_hop ? prefix_at(image, h, walk->next_hop - 1) : NULL;
	if (!s)
		return HOP_NONE;
	struct address to = {.hi = s->lo_hi, .lo = s->lo_lo};
	fwd->hop = to;
	fwd->hop_port = s->hi_lo;
	if (own_hop(&to))
		return HOP_OWN;
	struct hop *n = bpf_map_lookup_elem(&hops, &to);
	if (!n || !n->ifindex)
		return HOP_NONE;
	fwd->hop = n->via;
	fwd->hop_ifindex = n->ifindex;
	fwd->hop_mtu = n->mtu;
	return HOP_OTHER;
}

// fits_hop: the packet is not too large for the path to the next hop. It sets fwd->hop_mtu to the
// MTU of that path, 0 if the interface is gone.
__noinline int fits_hop(struct __sk_buff *skb, struct cpu *c)
{
	__u32 mtu = 0;
	if (!c)
		return 0;
	struct forward *fwd = &c->fwd;

	if (bpf_check_mtu(skb, fwd->hop_ifindex, &mtu, 0, 0) < 0)
		mtu = 0;
	if (!fwd->hop_mtu || mtu < fwd->hop_mtu)
		fwd->hop_mtu = mtu;
	return fits_mtu(skb, &c->packet, fwd->hop_mtu);
}

// answer_hop sends the answer to a packet that fail_hop has dropped.
__noinline int answer_hop(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return TC_ACT_SHOT;
	return refuse_frame(skb, c, &c->packet, &c->verdict, &c->nat);
}

// validate_source returns the reason for which the kernel's own input path, which this packet
// bypasses, would not take it, or 0: see source_validation.h.
static __always_inline __u8 validate_source(struct __sk_buff *skb, struct cpu *c)
{
	const struct packet *p = &c->packet;

	if (martian(p))
		return REASON_MARTIAN;
	return passes_rp_filter(skb, p, &c->fwd, &c->scratch, iface_sysctl_flags(p->recv)) ?
		       0 :
		       REASON_SPOOF;
}

// meets_policy: an IPsec policy is about a packet that came in, which the stack has not asked yet.
static __always_inline int meets_policy(struct __sk_buff *skb, struct cpu *c)
{
	struct forwarding *f = forwarding_settings();

	return unlikely(f->policies) && (protected(c, POLICY_OUT, 0, skb->mark) ||
					 protected(c, POLICY_FORWARD, 0, skb->mark));
}

// check_hop checks whether the packet can go to its next hop. FWD_CONTINUE: it can, or as
// resolve_next_hop says.
__noinline int check_hop(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	const struct packet *p = &c->packet;
	struct forward *fwd = &c->fwd;
	__u32 ifindex = fwd->hop_ifindex;

	if (l2 == L2_INFINIBAND || !single(p->dst_hi, p->dst_lo, p->version))
		return drop(skb, c, cf, REASON_NO_HOP);
	// A packet on its way out is not evaluated again, so the hook of its new interface has to
	// know the mark. What a rule with states has sent on at ingress matches that rule again
	// here, already at the right interface.
	if (p->dir == DIR_OUT && !may_redirect_to(ifindex)) {
		if (ifindex != skb->ifindex || p->second_evaluation)
			return drop(skb, c, cf, REASON_NO_HOP);
		c->walk.next_hop = 0;
		return FWD_CONTINUE;
	}
	if (p->dir == DIR_IN) {
		__u8 why = validate_source(skb, c);
		if (why)
			return drop(skb, c, cf, why);
		if (meets_policy(skb, c)) {
			c->walk.next_hop = 0;
			return FWD_CONTINUE;
		}
		if (p->ttl <= 1)
			return fail_hop(skb, c, cf, REASON_HOP_TTL, HOP_EXPIRED);
	}
	if (fits_hop(skb, c))
		return FWD_CONTINUE;
	if (!fwd->hop_mtu)
		return drop(skb, c, cf, REASON_NO_HOP);
	return fail_hop(skb, c, cf, REASON_HOP_MTU, HOP_TOO_BIG);
}

// socket_tuple writes the tuple to find the packet's socket by: that of its connection, or with
// `listening` that which listens at the next hop. It returns its size.
static __always_inline __u32 socket_tuple(struct bpf_sock_tuple *t, const struct packet *p,
					  const struct forward *fwd, int listening)
{
	__u32 port = fwd->hop_port ? fwd->hop_port : p->ports & 0xffff;

	if (!listening)
		return sock_tuple(t, p->version, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo,
				  p->ports);
	return sock_tuple(t, p->version, p->src_hi, p->src_lo, fwd->hop.hi, fwd->hop.lo,
			  (p->ports & 0xffff0000) | (port & 0xffff));
}

// tcp_socket gives a segment to the socket that listens at the next hop, or without `listening`
// looks for that of its connection, which the stack finds by itself. It reports whether there is
// one. A SYN may begin a connection where another one has just ended.
__noinline int tcp_socket(struct __sk_buff *skb, struct cpu *c, __u32 listening)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct bpf_sock_tuple *t = (struct bpf_sock_tuple *)c->scratch.buf;
	__u32 size = socket_tuple(t, p, &c->fwd, listening);
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, t, size, -1, 0);
	if (!sk)
		return 0;
	__u32 state = sk->state;
	int found = state != TCP_LISTEN;
	if (listening)
		found = !found && bpf_sk_assign(skb, sk, 0) == 0;
	else if (state == TCP_TIME_WAIT)
		found = !bare_syn(p->tcp_flags);
	bpf_sk_release(sk);
	return found;
}

// udp_socket does the same with a datagram.
__noinline int udp_socket(struct __sk_buff *skb, struct cpu *c, __u32 listening)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct bpf_sock_tuple *t = (struct bpf_sock_tuple *)c->scratch.buf;
	__u32 size = socket_tuple(t, p, &c->fwd, listening);
	struct bpf_sock *sk = bpf_sk_lookup_udp(skb, t, size, -1, 0);
	if (!sk)
		return 0;
	int found = listening ? bpf_sk_assign(skb, sk, 0) == 0 : sk->state == TCP_ESTABLISHED;
	bpf_sk_release(sk);
	return found;
}

// to_socket gives an incoming packet to a socket of the host, as TPROXY does: its addresses stay.
// What has no ports goes to the host only if it is addressed to it.
__noinline int to_socket(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	const struct packet *p = &c->packet;
	int own = is_mine(p->version, p->dst_hi, p->dst_lo), found = own;

	if (p->frag & (FRAG_FIRST | FRAG_LATER))
		found = 0;
	else if (p->proto == PROTO_TCP)
		found = tcp_socket(skb, c, 0) || tcp_socket(skb, c, 1);
	else if (p->proto == PROTO_UDP)
		found = udp_socket(skb, c, 0) || udp_socket(skb, c, 1);
	if (!found)
		return drop(skb, c, cf, REASON_NO_SOCKET);
	// The agent has a routing rule for the mark. The stack drops a packet with a socket that it
	// would forward.
	if (!own)
		skb->mark = FWD_MARK;
	return FWD_STACK;
}

// resolve_next_hop finds out where a packet goes that a rule with fwd has let pass. FWD_CONTINUE:
// to the next hop in struct forward. If walk->next_hop is 0 it goes where it would go without the
// rule. These are frames with a VLAN tag, which meet the hook of their own interface, and frames
// that were not sent to this host alone. On their way in they are also packets that an IPsec policy
// is about.
__noinline int resolve_next_hop(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	const struct packet *p = &c->packet;
	__u32 came_in = p->dir == DIR_IN || skb->ingress_ifindex;

	if (skb->vlan_present || p->l3 != l2 || (came_in && skb->pkt_type != HOST)) {
		c->walk.next_hop = 0;
		return FWD_CONTINUE;
	}
	int kind = find_hop(c);
	if (kind == HOP_OTHER)
		return check_hop(skb, c, l2);
	if (kind == HOP_OWN && p->dir == DIR_IN)
		return to_socket(skb, c);
	return drop(skb, c, cf, REASON_NO_HOP);
}

// send_hop sends a packet to the next hop that resolve_next_hop has found, if any. A packet that
// came in is evaluated again at its new interface; one on its way out is not.
__noinline int send_hop(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	struct config *cf = settings();
	if (!c || !cf)
		return TC_ACT_SHOT;
	struct packet *p = &c->packet;
	struct forward *fwd = &c->fwd;
	__u32 ingress = p->dir == DIR_IN || p->second_evaluation;

	if (!c->walk.next_hop)
		return FWD_STACK;
	if (!l2) { // the kernel expects an Ethernet header
		if (bpf_skb_change_head(skb, 14, 0) < 0)
			return TC_ACT_SHOT;
		p->l3 = 14;
	}
	if (ingress && address_frame(skb, p, fwd, 0) < 0)
		return TC_ACT_SHOT;
	if (p->dir == DIR_OUT)
		skb->mark = cf->local_mark & ~MARK_KIND;
	struct bpf_redir_neigh *next = &fwd->next;
	__builtin_memset(next, 0, sizeof(*next));
	if (p->version == 4) {
		next->nh_family = AF_INET;
		next->nh[0] = be32((__u32)fwd->hop.lo);
	} else {
		next->nh_family = AF_INET6;
		put64(next->nh, fwd->hop.hi);
		put64(next->nh + 2, fwd->hop.lo);
	}
	return bpf_redirect_neigh(fwd->hop_ifindex, next, sizeof(*next), 0);
}

// forward_on sends a packet to the next hop of its rule with fwd, on a host without pods and
// translations.
__noinline int forward_on(struct __sk_buff *skb, struct cpu *c, __u32 l2)
{
	int r = resolve_next_hop(skb, c, l2);

	if (r == FWD_CONTINUE)
		return send_hop(skb, c, l2);
	return r == FWD_ANSWER ? answer_hop(skb, c) : r;
}
