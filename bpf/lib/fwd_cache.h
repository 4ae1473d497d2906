// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The forwarding cache of each CPU, by interface and addresses. It holds who sends such a packet,
// whether the sender may use that address, and where the packet goes. Most packets search no map
// and no route.
#pragma once

#include "source_validation.h"

// What a step of forwarding returns: a value for the program to return, of which FWD_STACK leaves
// the packet to the stack, or one that no program returns. FWD_CONTINUE: the next step follows.
// FWD_EGRESS: the packet goes to egress. FWD_HOP: it goes to the next hop of a rule with fwd.
// FWD_ANSWER: answer_hop has to answer it.
enum fwd_step { FWD_STACK = TC_ACT_UNSPEC, FWD_CONTINUE = 100, FWD_EGRESS, FWD_HOP, FWD_ANSWER };
// A packet that was already evaluated at egress has the local mark without this bit. The local mark
// always has it.
enum { MARK_KIND = 1 };
// A packet that weir_in_netkit has evaluated and left to the stack differs from the local mark in
// this bit alone. weir_in clears that mark, and lets the packet pass.
enum { MARK_NETKIT = 2 };
// What a pod's packets come through, see fwd_entry.from_pod.
enum { FROM_VETH = 1, FROM_NETKIT = 2 };

// a route is looked up again every 67 ms: it may change, and the kernel keeps its neighbour alive
enum { FWD_ROUTE_SHIFT = 26 };
enum { ECN_BITS = 3 }; // of the TOS, RFC 3168

// An entry: packets from one address to another that come in through one interface. It is valid
// until pods, NICs or addresses change (serial).
struct fwd_entry {
	__u64 src_hi, src_lo, dst_hi, dst_lo;
	__u32 recv;
	__u32 serial;
	__u32 route;	 // the time, shifted, when a route to a NIC was stored below
	__u32 rp_filter; // the time, shifted, of passes_rp_filter, 0 if there was no need
	__u8 tos;	 // that the route, or passes_rp_filter, is for
	__u8 from_pod;	 // FROM_VETH, FROM_NETKIT or 0
	__u8 to_pod;
	__u8 masqueraded; // it leaves with the host's address
	__u32 ifindex;	  // where it leaves: the host end of a pod, or a NIC
	__u32 mtu;
	__u8 macs[12]; // destination, source
	struct {
		__u32 place, limited; // as in struct endpoint
	} origin, target;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CACHE_ENTRIES);
	__type(key, __u32);
	__type(value, struct fwd_entry);
} fwd_cache SEC(".maps");

static __always_inline struct fwd_entry *fwd_at(__u32 index)
{
	index &= CACHE_ENTRIES - 1;
	return bpf_map_lookup_elem(&fwd_cache, &index);
}

static __always_inline int is_own(const struct packet *p, struct endpoint *e)
{
	for (__u32 i = 0; i < MAX_POD_ADDRESSES; i++) {
		if (i < e->count && e->addr[i].lo == p->src_lo && e->addr[i].hi == p->src_hi)
			return 1;
	}
	return 0;
}

// is_link_local: the source is unspecified or the link-local address that follows from the pod's
// MAC address (RFC 4291, appendix A).
static __always_inline int is_link_local(const struct packet *p, struct endpoint *e)
{
	__u64 id = (__u64)(e->mac[0] ^ 2) << 56 | (__u64)e->mac[1] << 48 | (__u64)e->mac[2] << 40 |
		   0xfffeULL << 24 | (__u64)e->mac[3] << 16 | (__u64)e->mac[4] << 8 | e->mac[5];

	return !(p->src_hi | p->src_lo) || (p->src_hi == 0xfe80ULL << 48 && p->src_lo == id);
}

// sender_wrong returns the reason to drop a packet for its addresses alone, or 0. A pod may send
// from its own addresses, and neighbour discovery. Others may not send as a pod or as the host.
static __always_inline __u8 sender_wrong(struct __sk_buff *skb, const struct packet *p,
					 struct forward *fwd, struct scratch *scratch,
					 struct endpoint *from)
{
	if (from ? !is_own(p, from) && !(essential(p) && is_link_local(p, from)) :
		   pod_at(p->src_hi, p->src_lo) != NULL)
		return REASON_SPOOF;
	if (martian(p))
		return REASON_MARTIAN;
	return !from && has_host_source(skb, p, fwd, scratch) ? REASON_SPOOF : 0;
}

enum { ARP_SENDER = 14 + 8 };

// own_arp: the pod behind an interface is the sender in an ARP packet. A sender that asks for an
// address of the host gets an entry in the neighbour table, which is small.
__noinline int own_arp(struct __sk_buff *skb, struct cpu *c)
{
	struct endpoint *e = endpoint_at(skb->ifindex);
	if (!c)
		return 0;
	if (!e)
		return 1;
	struct packet *p = &c->packet;
	struct scratch *scratch = &c->scratch;
	if (bpf_skb_load_bytes(skb, ARP_SENDER, scratch->buf, 10) < 0)
		return 0;
	for (int i = 0; i < 6; i++) {
		if (scratch->buf[i] != e->mac[i])
			return 0;
	}
	p->src_hi = 0;
	p->src_lo = mapped(*(__be32 *)(scratch->buf + 6));
	return !(__u32)p->src_lo || is_own(p, e);
}

static __always_inline void fwd_to_pod(struct fwd_entry *w, struct endpoint *to)
{
	w->to_pod = 1;
	w->ifindex = to->ifindex;
	w->mtu = to->mtu;
	__builtin_memcpy(w->macs, to->mac, 6);
	__builtin_memcpy(w->macs + 6, to->host_mac, 6);
	w->target.place = to->place;
	w->target.limited = limits_of(to);
}

// fwd_fill fills the entry of the packet's addresses. It is not cached who sends neighbour
// discovery or what the stack has looped back: that depends on more than addresses.
__noinline int fwd_fill(struct __sk_buff *skb, struct cpu *c, __u32 serial)
{
	struct forwarding *f = forwarding_settings();
	if (!c || !f)
		return REASON_SPOOF;
	const struct packet *p = &c->packet;
	struct forward *fwd = &c->fwd;
	struct scratch *scratch = &c->scratch;
	struct fwd_entry *w = fwd_at(fwd->index);
	if (!w)
		return REASON_SPOOF;
	struct endpoint *from = endpoint_at(p->recv);
	w->serial = 0;
	w->route = 0;
	w->rp_filter = 0;
	w->to_pod = 0;
	w->from_pod = 0;
	if (from) {
		w->from_pod = from->limited & ENDPOINT_NETKIT ? FROM_NETKIT : FROM_VETH;
		w->origin.place = from->place;
		w->origin.limited = limits_of(from);
	}
	__u8 wrong = sender_wrong(skb, p, fwd, scratch, from);
	if (wrong)
		return wrong;
	struct endpoint *to = pod_at(p->dst_hi, p->dst_lo);
	if (to) {
		fwd_to_pod(w, to);
		__u32 flags = from ? 0 : iface_sysctl_flags(p->recv);
		if (flags & (RP_STRICT | RP_LOOSE))
			w->rp_filter = p->now >> FWD_ROUTE_SHIFT;
		w->tos = p->tos;
		if ((f->stack & (from ? STACK_PODS : STACK_NICS)) ||
		    (!from && !passes_rp_filter(skb, p, fwd, scratch, flags)))
			w->mtu = 0; // no packet fits: the stack decides
	}
	w->masqueraded = from && !to && find_masquerade(p, f) != NULL;
	w->src_hi = p->src_hi;
	w->src_lo = p->src_lo;
	w->dst_hi = p->dst_hi;
	w->dst_lo = p->dst_lo;
	w->recv = p->recv;
	if (from ? is_own(p, from) : !may_have_host_source(skb, p))
		w->serial = serial;
	return 0;
}

// passes_by_tos: what passes_rp_filter has found not long ago, if anything, holds for a packet. A
// routing rule may ask about the TOS, but not about the bits of ECN.
static __always_inline int passes_by_tos(const struct fwd_entry *w, __s64 now, __u8 tos)
{
	return !w->rp_filter ||
	       (w->rp_filter == (__u32)(now >> FWD_ROUTE_SHIFT) && !((w->tos ^ tos) & ~ECN_BITS));
}

// fwd_lookup returns the entry where the packet's addresses belong, and sets *known to whether it
// holds them.
static __always_inline struct fwd_entry *fwd_lookup(const struct packet *p, struct forward *fwd,
						    __u32 serial, __u8 tos, int *known)
{
	fwd->index = cache_index(p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, p->recv);
	struct fwd_entry *w = fwd_at(fwd->index);
	*known = w && w->serial == serial && passes_by_tos(w, p->now, tos) && w->recv == p->recv &&
		 w->dst_lo == p->dst_lo && w->src_lo == p->src_lo && w->dst_hi == p->dst_hi &&
		 w->src_hi == p->src_hi;
	return w;
}

// fwd_get returns the entry of the packet's addresses, filled if need be, and sets *wrong to the
// reason to drop the packet for its addresses, or to 0.
static __always_inline struct fwd_entry *fwd_get(struct __sk_buff *skb, struct cpu *c,
						 const struct packet *p, struct forward *fwd,
						 struct forwarding *f, __u8 *wrong)
{
	__u32 serial = f->serial;
	int known;
	struct fwd_entry *w = fwd_lookup(p, fwd, serial, p->tos, &known);

	*wrong = known || !w ? 0 : fwd_fill(skb, c, serial);
	return w;
}

// enter_pod puts a packet that was evaluated at egress into a pod, past the host end. A packet from
// a netkit is still on the transmit path of its sender, where the kernel refuses bpf_redirect_peer.
// It goes through the host end, whose egress hook lets it pass by its mark.
static __always_inline int enter_pod(struct __sk_buff *skb, const struct config *cf,
				     const struct forwarding *f, __u32 ifindex, __u8 from_pod)
{
	if (likely(!f->no_redirect_peer && from_pod != FROM_NETKIT))
		return bpf_redirect_peer(ifindex, 0);
	skb->mark = cf->local_mark & ~MARK_KIND;
	return bpf_redirect(ifindex, 0);
}

static __always_inline int fits_mtu(struct __sk_buff *skb, const struct packet *p, __u32 mtu)
{
	__u32 segment = skb->gso_size;

	return (segment ? segment + p->payload - p->jumbo : p->len) <= mtu;
}

// route_fresh: a route that was looked up not long ago holds for the packet.
static __always_inline int route_fresh(struct fwd_entry *w, __s64 now, __u8 tos)
{
	return w->route == (__u32)(now >> FWD_ROUTE_SHIFT) && w->tos == tos;
}

// route_mtu is the MTU of the route to the packet's destination, at most `mtu`. bpf_fib_lookup uses
// a route's own MTU only if that is locked, or ip_forward_use_pmtu is set. The stack always uses it
// when it forwards. The agent fills the map route_mtus from the routes that it knows. An MTU there
// may be too small: then the stack decides.
static __always_inline __u32 route_mtu(const struct packet *p, __u32 mtu)
{
	struct forwarding *f = forwarding_settings();
	if (!f || likely(!f->route_mtus))
		return mtu;
	struct table_key k;
	trie_key(&k, p->version, p->dst_hi, p->dst_lo);
	__u32 *own = bpf_map_lookup_elem(&route_mtus, &k);
	return own && *own < mtu ? *own : mtu;
}

// look_up_nic asks the kernel for the NIC that a packet of a pod leaves by, and stores it in the
// entry. It reports whether there is one. The look-up knows no ports and no mark, and asks no IPsec
// policy.
__noinline int look_up_nic(struct __sk_buff *skb, struct cpu *c)
{
	struct forwarding *f = forwarding_settings();
	if (!c || !f || unlikely(f->stack & STACK_NICS))
		return 0;
	const struct packet *p = &c->packet;
	struct forward *fwd = &c->fwd;
	struct scratch *scratch = &c->scratch;
	struct fwd_entry *w = fwd_at(fwd->index);
	struct bpf_fib_lookup *fib = &fwd->route;
	__be32 *words = scratch->new_words;
	if (!w)
		return 0;
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = skb->ifindex;
	fib->tot_len = 1; // otherwise the MTU that comes back is the NIC's: see route_mtu
	address_words(p, words, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo);
	set_fib_addresses(fib, p, words);
	if (bpf_fib_lookup(skb, fib, sizeof(*fib), 0) != FIB_SUCCESS)
		return 0;
	__u32 ifindex = fib->ifindex;
	if (!may_redirect_to(ifindex))
		return 0;
	w->ifindex = ifindex;
	w->mtu = route_mtu(p, fib->tot_len);
	w->tos = p->tos;
	__builtin_memcpy(w->macs, fib->dmac, 6);
	__builtin_memcpy(w->macs + 6, fib->smac, 6);
	w->route = p->now >> FWD_ROUTE_SHIFT;
	return 1;
}

// find_nic finds the NIC that a packet of a pod leaves by. It returns 0 if the stack has to route
// it. The first packet of each interval goes through the kernel's neighbour table, which keeps the
// neighbour alive; the others go directly to the NIC.
static __always_inline int find_nic(struct __sk_buff *skb, struct cpu *c, struct packet *p,
				    struct forward *fwd)
{
	struct fwd_entry *w = fwd_at(fwd->index);

	if (!w)
		return 0;
	fwd->macs_known = route_fresh(w, p->now, p->tos);
	if (!fwd->macs_known && !look_up_nic(skb, c))
		return 0;
	p->xmit = w->ifindex;
	__builtin_memcpy(fwd->macs, w->macs, sizeof(fwd->macs));
	return fits_mtu(skb, p, w->mtu);
}
