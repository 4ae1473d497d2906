// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Upper devices: a VLAN, a bond or a bridge above an interface. What leaves by one crosses the
// hooks of both, and is evaluated and translated at the upper one, which has the addresses. At the
// lower one it passes, if it is what this CPU has just evaluated above; everything else is
// evaluated.
//
// What comes in is evaluated at both. Which frames an upper device takes depends on more than a
// program can see, and a frame that it does not take would not be evaluated at all. At the upper
// one it is known that the lower one may have translated it (cpu.passed_before).
#pragma once

#include "maps.h"

struct upper_key {
	__u32 lower, upper; // indexes of interfaces
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct upper_key);
	__type(value, __u32);
} uppers SEC(".maps");

enum { HEAD_WORDS = 6 };

// What this CPU let pass last.
struct passed_frame {
	__u32 at;	// where it was evaluated
	__u32 below;	// the last lower device that let it leave
	__u32 from;	// the interface that it came in by, 0 for none
	__u32 len;	// 0: nothing
	__u32 segments; // how many the kernel may still make of it
	__u32 pad;
	__u64 head[HEAD_WORDS];
};

// By direction.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct passed_frame);
} last_passed SEC(".maps");

// read_head reads the beginning of the packet behind the Ethernet header, of a short one less.
static __always_inline void read_head(struct __sk_buff *skb, struct passed_frame *l)
{
	l->len = skb->len;
	if (bpf_skb_load_bytes(skb, 14, l->head, 8 * HEAD_WORDS) < 0 &&
	    bpf_skb_load_bytes(skb, 14, l->head, 24) < 0)
		l->len = 0;
}

// note_passed notes a frame that an interface lets pass.
__noinline int note_passed(struct __sk_buff *skb, __u32 dir)
{
	__u32 key = dir & 1;
	struct passed_frame *l = bpf_map_lookup_elem(&last_passed, &key);

	if (!l)
		return 0;
	__builtin_memset(l, 0, sizeof(*l));
	l->at = skb->ifindex;
	l->from = skb->ingress_ifindex;
	if (skb->gso_size)
		l->segments = skb->len / skb->gso_size + 1;
	read_head(skb, l);
	return 0;
}

// head_mask returns which bytes of a word of the head are the same in a packet and in the segments
// that are made of it. These are the time to live, the protocol, the addresses and the ports.
static __always_inline __u64 head_mask(int six, int word)
{
	if (six)
		return word == 0 ? 0xffffULL << 48 : word == 5 ? 0xffffffff : ~0ULL;
	return word == 1 ? ~(0xffffULL << 16) : word == 2 ? ~0ULL : 0;
}

static __always_inline int is_upper(__u32 lower, __u32 upper)
{
	struct upper_key k = {.lower = lower, .upper = upper};

	return bpf_map_lookup_elem(&uppers, &k) != NULL;
}

// same_frame reports whether a frame is the one that was noted. Only what leaves is one of its
// segments.
static __always_inline int same_frame(struct __sk_buff *skb, struct passed_frame *l, __u32 dir)
{
	struct passed_frame now = {};

	read_head(skb, &now);
	int whole = l->len == now.len, six = (__u8)l->head[0] >> 4 == 6;
	if (!now.len || (!whole && (dir == DIR_IN || !l->segments)))
		return 0;
	for (int i = 0; i < HEAD_WORDS; i++) {
		if ((l->head[i] ^ now.head[i]) & (whole ? ~0ULL : head_mask(six, i)))
			return 0;
	}
	return 1;
}

// has_passed reports whether the frame has just been let pass at an upper device of this interface,
// when it leaves, or at a lower one, when it comes in. Between the hooks the kernel stays on a CPU
// and processes nothing else there (softirqs are off). If the upper device has a queue, or packet
// steering, it is another frame that was noted. What leaves has the same origin: a guest of a
// bridge may send what the host has sent.
__noinline int has_passed(struct __sk_buff *skb, __u32 dir)
{
	__u32 key = dir & 1;
	struct passed_frame *l = bpf_map_lookup_elem(&last_passed, &key);

	if (!l || !l->len || !same_frame(skb, l, dir))
		return 0;
	if (dir == DIR_IN)
		return is_upper(l->at, skb->ifindex);
	if (l->from != skb->ingress_ifindex ||
	    (!is_upper(skb->ifindex, l->at) && !is_upper(skb->ifindex, l->below)))
		return 0;
	if (l->len != skb->len)
		l->segments--;
	l->below = skb->ifindex;
	return 1;
}
