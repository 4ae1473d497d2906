// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Weir's programs, one per direction and kind of interface: with Ethernet headers, with headers of
// IP over InfiniBand, and without link-layer headers.
#include "lib/control.h"
#include "lib/next_hop.h"
#include "lib/loopback.h"
#include "lib/upper_dev.h"
#include "lib/fast_hook.h"

// The second programs of the hooks, by enum slow_path. The agent puts them there. The kernel clears
// the map when no process and no pin refers to it any more.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SLOW_PATHS);
	__type(key, __u32);
	__type(value, __u32);
} slow_paths SEC(".maps");

// hook is the first program of an interface. A packet that the second program should get, and does
// not, is dropped.
static __always_inline int hook(struct __sk_buff *skb, __u32 l2, __u8 dir, enum slow_path slow)
{
	struct config *cf = settings();
	if (!cf || cf->layout != LAYOUT)
		return TC_ACT_SHOT;
	struct cpu *c = this_cpu();
	if (!c)
		return TC_ACT_SHOT;
	__u32 may_have_upper = l2 == 14 && slow != SLOW_IN_NETKIT;
	if (unlikely(cf->uppers)) {
		c->passed_before = may_have_upper && has_passed(skb, dir);
		if (dir == DIR_OUT && c->passed_before)
			return TC_ACT_UNSPEC;
	}
	int r = fast_hook(skb, c, cf, l2, dir);
	if (unlikely(r == FWD_CONTINUE)) {
		bpf_tail_call(skb, &slow_paths, slow);
		return TC_ACT_SHOT;
	}
	// read again, so that the verifier need not follow both cases so far
	if (may_have_upper && unlikely(READ_ONCE(cf->uppers)) && r == TC_ACT_UNSPEC)
		note_passed(skb, dir);
	return r;
}

// slow_filter evaluates a packet that fast_hook has left. The test for passing comes last: if
// anything fails before it, the packet is dropped.
static __always_inline int slow_filter(struct __sk_buff *skb, struct cpu *c, struct config *cf,
				       __u32 l2, __u8 dir)
{
	__u32 mark = skb->mark;
	if (unlikely(is_own_mark(cf, mark, l2, dir))) {
		if (mark == cf->local_mark)
			return dir == DIR_OUT ? pass_own_packet(skb, c, l2) : TC_ACT_UNSPEC;
		skb->mark = 0;
		if (dir == DIR_OUT || mark == (cf->local_mark ^ MARK_NETKIT))
			return TC_ACT_UNSPEC;
		return l2 == 14 ? deliver_to_pod(skb, c) : TC_ACT_SHOT;
	}
	struct forwarding *f = forwarding_settings();
	if (!f)
		return TC_ACT_SHOT;
	struct packet *p = &c->packet;
	struct verdict *v = &c->verdict;
	struct cookie *cookie = &c->cookie;
	begin_packet(c, cf);
	if (c->known != FAST_NOT) {
		int r = fast_rest(skb, c, cf, f, l2);
		if (likely(r != FWD_CONTINUE))
			return r;
	}
	if (f->pods | f->published | f->sources) {
		c->look.missed = NONE; // the packet may be translated before it is looked up
		return dir == DIR_IN ? forward_in(skb, c, p, &c->walk, cookie, &c->nat, l2) :
				       forward_out(skb, c, l2);
	}
	read_frame(skb, c, l2);
	if (dir == DIR_IN) {
		if (unlikely(may_be_own(cf, p->src_hi, p->src_lo)) &&
		    drop_own_source(skb, c) != FWD_CONTINUE)
			return TC_ACT_SHOT;
		before_evaluate(skb, c, p);
	}
	evaluate(skb, c);
	if (dir == DIR_IN)
		after_evaluate(skb, c, cookie);
	if (conclude(skb, c, cf, l2))
		return unlikely(c->walk.next_hop) ? forward_on(skb, c, l2) : TC_ACT_UNSPEC;
	return unlikely(v->answer) ? reply(skb, c) : TC_ACT_SHOT;
}

// slow_hook is the second program of an interface.
static __always_inline int slow_hook(struct __sk_buff *skb, __u32 l2, __u8 dir)
{
	struct config *cf = settings();
	struct cpu *c = this_cpu();
	if (!c || !cf || cf->layout != LAYOUT)
		return TC_ACT_SHOT;
	int r = slow_filter(skb, c, cf, l2, dir);
	if (l2 == 14 && unlikely(cf->uppers) && r == TC_ACT_UNSPEC)
		note_passed(skb, dir);
	return r;
}

// whole_hook is the only program of an interface whose packets the fast path does not read.
static __always_inline int whole_hook(struct __sk_buff *skb, __u32 l2, __u8 dir)
{
	struct config *cf = settings();
	struct cpu *c = this_cpu();
	if (!c || !cf || cf->layout != LAYOUT)
		return TC_ACT_SHOT;
	begin_hook(skb, c, cf, l2, dir);
	c->passed_before = 0;
	return slow_filter(skb, c, cf, l2, dir);
}

SEC("tc") int weir_in(struct __sk_buff *skb)
{
	return hook(skb, 14, DIR_IN, SLOW_IN);
}

SEC("tc") int weir_in_slow(struct __sk_buff *skb)
{
	return slow_hook(skb, 14, DIR_IN);
}

SEC("tc") int weir_out(struct __sk_buff *skb)
{
	return hook(skb, 14, DIR_OUT, SLOW_OUT);
}

SEC("tc") int weir_out_slow(struct __sk_buff *skb)
{
	return slow_hook(skb, 14, DIR_OUT);
}

// leave_to_stack marks a packet of a netkit that passed and goes up the stack.
static __always_inline int leave_to_stack(struct __sk_buff *skb, const struct config *cf, int r)
{
	if (r == TC_ACT_UNSPEC)
		skb->mark = cf->local_mark ^ MARK_NETKIT;
	return r;
}

// weir_in_netkit runs when the inner end of a pod's netkit sends (BPF_NETKIT_PEER). The kernel has
// already given the packet to the host end, so all is as at its ingress, except that the packet has
// not waited in a queue. A packet that goes up the stack meets weir_in at that ingress. Its second
// program lets the packet pass by its mark, and evaluates what other programs have put there.
//
// The rules use the type in the Ethernet header, the stack uses skb->protocol. With a veth both are
// the same; with a netkit a packet socket chooses skb->protocol. A frame in which the two differ,
// or whose header has a length in place of a type, goes to the ingress of the host end first. On
// that path the kernel sets skb->protocol from the header, as with a veth.
SEC("tc") int weir_in_netkit(struct __sk_buff *skb)
{
	struct config *cf = settings();
	if (!cf)
		return TC_ACT_SHOT;
	const struct ethernet *eth = (void *)(long)skb->data;
	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return TC_ACT_SHOT;
	if (unlikely(eth->type != skb->protocol || be16(eth->type) < ETH_TYPES))
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	return leave_to_stack(skb, cf, hook(skb, 14, DIR_IN, SLOW_IN_NETKIT));
}

SEC("tc") int weir_in_netkit_slow(struct __sk_buff *skb)
{
	struct config *cf = settings();
	struct cpu *c = this_cpu();
	if (!c || !cf || cf->layout != LAYOUT)
		return TC_ACT_SHOT;
	return leave_to_stack(skb, cf, slow_filter(skb, c, cf, 14, DIR_IN));
}

SEC("tc") int weir_in_l3(struct __sk_buff *skb)
{
	return hook(skb, 0, DIR_IN, SLOW_IN_L3);
}

SEC("tc") int weir_in_l3_slow(struct __sk_buff *skb)
{
	return slow_hook(skb, 0, DIR_IN);
}

SEC("tc") int weir_out_l3(struct __sk_buff *skb)
{
	return hook(skb, 0, DIR_OUT, SLOW_OUT_L3);
}

SEC("tc") int weir_out_l3_slow(struct __sk_buff *skb)
{
	return slow_hook(skb, 0, DIR_OUT);
}

SEC("tc") int weir_in_ib(struct __sk_buff *skb)
{
	return whole_hook(skb, L2_INFINIBAND, DIR_IN);
}

SEC("tc") int weir_out_ib(struct __sk_buff *skb)
{
	return whole_hook(skb, L2_INFINIBAND, DIR_OUT);
}

// weir_local runs at egress of the loopback, where packets of the host to its own published ports
// leave.
SEC("tc") int weir_local(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf || cf->layout != LAYOUT)
		return TC_ACT_UNSPEC;
	c->packet.now = coarse_now(cf);
	c->packet.dir = DIR_IN;
	c->packet.recv = c->packet.xmit = skb->ifindex;
	read_frame(skb, c, 14);
	return loopback_to_pod(skb, c);
}

// weir_call does what struct call asks for, run by BPF_PROG_TEST_RUN.
SEC("tc") int weir_call(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	if (!c || !cf || !in || cf->layout != LAYOUT)
		return 1;
	c->packet.now = in->now ? in->now : bpf_ktime_get_coarse_ns();
	c->walk.current = cf->current & CURRENT_SLOT;
	in->result = operate(c, in->op);
	return 0;
}

// weir_evaluate evaluates the given packet by the same code as the programs above, with the input
// of struct call. Run by BPF_PROG_TEST_RUN. It is separate from weir_call: a node never needs it,
// and the verifier takes as long for it as for a program above.
SEC("tc") int weir_evaluate(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct fast_packet e;
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	if (!c || !cf || !in || cf->layout != LAYOUT)
		return 1;
	c->packet.now = in->now;
	c->walk.current = cf->current & CURRENT_SLOT;
	take_input(c);
	c->known = fast_decode(&e, skb, 14) ? fast_established(c, cf, &e, 0, 1, &c->verdict) :
					      FAST_NOT;
	if (c->known == FAST_DONE || (c->known == FAST_STATELESS && fast_stateless(c)))
		return give_verdict(c);
	bpf_tail_call(skb, &slow_paths, SLOW_EVALUATE);
	return 1;
}

SEC("tc") int weir_evaluate_slow(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf)
		return 1;
	if (!fast_decide(skb, c, cf, 14, c->known, 0)) {
		read_frame(skb, c, 14);
		evaluate(skb, c);
	}
	return give_verdict(c);
}

// weir_release gives a held frame to its hook again. Run by BPF_PROG_TEST_RUN, which sets the
// interfaces, mark and priority that the frame had there. The kernel sets pkt_type as for a new
// frame, so cb[0] holds the type that this one had. cb[1] is the direction.
SEC("tc") int weir_release(struct __sk_buff *skb)
{
	struct config *cf = settings();

	if (!cf || cf->layout != LAYOUT)
		return 1;
	if (skb->pkt_type != skb->cb[0] && bpf_skb_change_type(skb, skb->cb[0]) < 0)
		return 1;
	return bpf_clone_redirect(skb, skb->ifindex, skb->cb[1] == DIR_IN ? BPF_F_INGRESS : 0) < 0;
}

// weir_tick starts the timer of the sweep, whose callback is a part of this program: packets do not
// interrupt the callback, but may interrupt weir_tick. Run by BPF_PROG_TEST_RUN.
SEC("tc") int weir_tick(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct config *cf = settings();
	struct call *in = bpf_map_lookup_elem(&calls, &zero);

	if (!cf || !in || cf->layout != LAYOUT)
		return 1;
	in->result = start_ticking();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
