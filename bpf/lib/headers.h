// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The headers of packets as they lie in frames. All numbers are in network byte order.
#pragma once

#include "maps.h"

enum { ETH_IP = 0x0800, ETH_ARP = 0x0806, ETH_IPV6 = 0x86dd };
enum { ETH_TYPES = 0x600 }; // smaller values are lengths, IEEE 802.3
enum { MAPPED = 0xffff };

struct ethernet {
	__u8 dst[6], src[6];
	__be16 type;
} __attribute__((packed, aligned(2))); // one load for the type

struct ip4 {
	__u8 version_ihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__u16 check;
	__be32 src, dst;
};

enum { IP4_OFFSET = 0x1fff, IP4_MF = 0x2000 }; // in frag

struct ip6 {
	__be32 version; // and traffic class, and flow label
	__be16 len;
	__u8 next, hops;
	__be64 src_hi, src_lo, dst_hi, dst_lo;
};

struct tcp {
	__be16 src, dst;
	__be32 seq, ack;
	__u8 offset, flags;
	__be16 window;
	__u16 check, urgent;
};

struct udp {
	__be16 src, dst;
	__be16 len; // of UDP-Lite: what the checksum covers
	__u16 check;
};

struct icmp {
	__u8 type, code;
	__u16 check;
	__be32 rest;
};

static __always_inline __u16 get16(const __u8 *b)
{
	return be16(*(const __u16 *)b);
}

static __always_inline __u32 get32(const __u8 *b)
{
	return be32(*(const __u32 *)b);
}

static __always_inline void put64(__be32 *to, __u64 v)
{
	to[0] = be32((__u32)(v >> 32));
	to[1] = be32((__u32)v);
}

// sock_tuple writes the ends of the socket to look for, and returns the size of the tuple. ports:
// source << 16 | destination.
static __always_inline __u32 sock_tuple(struct bpf_sock_tuple *t, __u8 version, __u64 src_hi,
					__u64 src_lo, __u64 dst_hi, __u64 dst_lo, __u32 ports)
{
	__be16 sport = be16(ports >> 16), dport = be16(ports & 0xffff);

	if (version == 4) {
		t->four.saddr = be32((__u32)src_lo);
		t->four.daddr = be32((__u32)dst_lo);
		t->four.sport = sport;
		t->four.dport = dport;
		return sizeof(t->four);
	}
	put64(&t->six.saddr[0], src_hi);
	put64(&t->six.saddr[2], src_lo);
	put64(&t->six.daddr[0], dst_hi);
	put64(&t->six.daddr[2], dst_lo);
	t->six.sport = sport;
	t->six.dport = dport;
	return sizeof(t->six);
}

// mapped returns the lower half of an IPv4 address as ::ffff:a.b.c.d, whose upper half is 0.
static __always_inline __u64 mapped(__be32 addr)
{
	return (__u64)MAPPED << 32 | be32(addr);
}

static __always_inline int is_mapped(__u64 hi, __u64 lo)
{
	return !hi && lo >> 32 == MAPPED;
}

static __always_inline __u8 ip_version(const void *ip)
{
	return *(const __u8 *)ip >> 4;
}

// plain4: the header has no options, and the packet is not a fragment.
static __always_inline int plain4(const struct ip4 *h)
{
	return h->version_ihl == 0x45 && !(h->frag & be16(IP4_MF | IP4_OFFSET));
}

static __always_inline __u8 ip6_tos(const struct ip6 *h)
{
	return be32(h->version) >> 20;
}

// tcp_header returns the length of a TCP header from the byte that holds it.
static __always_inline __u32 tcp_header(__u8 offset)
{
	return offset >> 4 << 2;
}
