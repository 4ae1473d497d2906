// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Weir's programs: one per direction and kind of interface, with and without Ethernet headers.
#include "lib/control.h"
#include "lib/reply.h"

// hook judges a packet at an interface. The test for passing is the last thing that happens: whatever goes wrong before, the packet is dropped.
inline_always int hook(struct __sk_buff *skb, __u32 l2, __u8 dir)
{
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	if (!c || !cf || cf->layout != LAYOUT)
		return TC_ACT_SHOT;
	struct pkt *p = &c->p;
	if (unlikely(cf->local_mark && skb->mark == cf->local_mark))
		return TC_ACT_UNSPEC;
	p->dir = dir;
	p->recv = dir == DIR_IN ? skb->ifindex : skb->ingress_ifindex;
	p->xmit = dir == DIR_IN ? 0 : skb->ifindex;
	p->now = bpf_ktime_get_coarse_ns();
	p->random = cf->random ? bpf_get_prandom_u32() : 0;
	p->tags = 0;
	judge(skb, l2);
	finish(c, cf);
	if (unlikely(listened(cf, EVENT_PACKET)))
		event_frame(skb, l2);
	if (p->v.pass)
		return TC_ACT_UNSPEC;
	return unlikely(p->v.answer) ? reply(skb) : TC_ACT_SHOT;
}

SEC("tc") int weir_in(struct __sk_buff *skb)
{
	return hook(skb, 14, DIR_IN);
}

SEC("tc") int weir_out(struct __sk_buff *skb)
{
	return hook(skb, 14, DIR_OUT);
}

SEC("tc") int weir_in_l3(struct __sk_buff *skb)
{
	return hook(skb, 0, DIR_IN);
}

SEC("tc") int weir_out_l3(struct __sk_buff *skb)
{
	return hook(skb, 0, DIR_OUT);
}

// weir_call does what struct call asks for, run by BPF_PROG_TEST_RUN. To judge, it runs the same code as the programs above over the packet given.
SEC("tc") int weir_call(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct cpu *c = this_cpu();
	struct config *cf = settings();
	struct call *in = bpf_map_lookup_elem(&calls, &zero);
	if (!c || !cf || !in || cf->layout != LAYOUT)
		return 1;
	struct pkt *p = &c->p;
	p->now = in->now || in->op == OP_JUDGE ? in->now : bpf_ktime_get_coarse_ns();
	p->current = cf->current;
	if (in->op != OP_JUDGE) {
		in->result = operate(in->op);
		return 0;
	}
	p->dir = in->dir;
	p->recv = in->recv;
	p->xmit = in->xmit;
	p->random = in->random;
	p->tags = 0;
	for (__u32 i = 0; i < MAX_TAGS; i++) {
		if (i < in->tags)
			add_tag(p, in->tag[i]);
	}
	judge(skb, 14);
	finish(c, cf);
	in->out = p->v;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
