// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Writing translated tuples, hop limits and addresses into frames, checksums included. Checksums
// that the NIC or the kernel will fill in (CHECKSUM_PARTIAL) hold the sum of the pseudo-header,
// which BPF_F_PSEUDO_HDR keeps right.
#pragma once

#include "masquerade.h"

// checksum_at returns the offset of the checksum in the transport header, 0 if it has none that
// depends on the tuple. SCTP's does not cover addresses, and its ports are never changed.
static __always_inline __u32 checksum_at(const struct packet *p, __u8 proto)
{
	switch (proto) {
	case PROTO_TCP:
		return 16;
	case PROTO_UDP:
	case PROTO_UDPLITE:
		return 6;
	case PROTO_ICMP:
		return p->version == 4 ? 2 : 0;
	case PROTO_ICMPV6:
		return p->version == 6 ? 2 : 0;
	}
	return 0;
}

// never_zero: a checksum of 0 means that there is none, RFC 768, or is not allowed, RFC 3828 3.1.
static __always_inline __u64 never_zero(__u8 proto)
{
	return proto == PROTO_UDP || proto == PROTO_UDPLITE ? BPF_F_MARK_MANGLED_0 : 0;
}

static __always_inline void address_words(const struct packet *p, __be32 *to, __u64 sh, __u64 sl,
					  __u64 dh, __u64 dl)
{
	if (p->version == 4) {
		to[0] = be32((__u32)sl);
		to[1] = be32((__u32)dl);
		return;
	}
	put64(to, sh);
	put64(to + 2, sl);
	put64(to + 4, dh);
	put64(to + 6, dl);
}

// pseudo_replace updates a checksum for a changed pseudo-header. Without BPF_F_IPV6 (Linux 6.16)
// the kernel corrupts the sum that the NIC has computed of a packet (CHECKSUM_COMPLETE).
static __always_inline long pseudo_replace(struct __sk_buff *skb, const struct packet *p, __u32 at,
					   __u64 diff, __u64 flags)
{
	flags |= BPF_F_PSEUDO_HDR;
	if (p->version == 6 && bpf_l4_csum_replace(skb, at, 0, diff, flags | BPF_F_IPV6) == 0)
		return 0;
	return bpf_l4_csum_replace(skb, at, 0, diff, flags);
}

static __always_inline long mangle_addresses(struct __sk_buff *skb, const struct packet *p,
					     struct nat *nat, struct scratch *scratch)
{
	__be32 *old = scratch->old_words, *new = scratch->new_words;
	struct tuple *w = &nat->orig;
	__u32 four = p->version == 4;

	address_words(p, old, w->src_hi, w->src_lo, w->dst_hi, w->dst_lo);
	address_words(p, new, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo);
	__u64 diff = (__u32)(four ? bpf_csum_diff(old, 8, new, 8, 0) :
				    bpf_csum_diff(old, 32, new, 32, 0));
	__u32 at = p->frag & FRAG_LATER ? 0 : checksum_at(p, p->proto);
	if (at && p->proto != PROTO_ICMP) {
		__u64 flags = never_zero(p->proto);
		if (pseudo_replace(skb, p, p->l3 + p->l4 + at, diff, flags) < 0)
			return -1;
	}
	if (!four)
		return bpf_skb_store_bytes(skb, p->l3 + 8, new, 32, 0);
	if (bpf_l3_csum_replace(skb, p->l3 + 10, 0, diff, 0) < 0)
		return -1;
	return bpf_skb_store_bytes(skb, p->l3 + 12, new, 8, 0);
}

static __always_inline long mangle_ports(struct __sk_buff *skb, const struct packet *p,
					 const struct nat *nat)
{
	__u32 now = ports_of(p), at = checksum_at(p, p->proto), start = p->l3 + p->l4;

	if (p->frag & FRAG_LATER || now == nat->orig.ports || !at)
		return 0;
	if (is_icmp(p)) {
		__u8 version = p->version, type = p->icmp_type;
		__be16 old = be16(icmp_id(version, type, nat->orig.ports));
		__be16 new = be16(icmp_id(version, type, now));
		if (bpf_l4_csum_replace(skb, start + at, old, new, 2) < 0)
			return -1;
		return bpf_skb_store_bytes(skb, start + 4, &new, 2, 0);
	}
	__be32 old = be32(nat->orig.ports), new = be32(now);
	if (bpf_l4_csum_replace(skb, start + at, old, new, 4 | never_zero(p->proto)) < 0)
		return -1;
	return bpf_skb_store_bytes(skb, start, &new, 4, 0);
}

// from the checksum of an IPv4 header on: itself, both addresses, and the ports if they follow
enum { IP4_CHECKSUM = 10, IP4_SUMMED = 14 };

// replace returns an Internet checksum after a change of two 32-bit words, RFC 1624. All are in the
// byte order of memory.
static __always_inline __u16 replace(__u16 checksum, __be32 *old, __be32 *new)
{
	__u64 sum = (__u16)~checksum;

	sum += (__u64)(__u32)~old[0] + (__u32)~old[1] + new[0] + new[1];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

// rewrite_plain is rewrite_frame for most packets: TCP or UDP over IPv4 without options, in one
// piece. Everything that changes, except the transport checksum, lies together.
static __always_inline long rewrite_plain(struct __sk_buff *skb, const struct packet *p,
					  struct nat *nat, struct scratch *scratch)
{
	__be32 *old = scratch->old_words, *new = scratch->new_words;
	struct tuple *w = &nat->orig;
	__u32 start = p->l3 + IP4_CHECKSUM, at = p->l3 + 20 + checksum_at(p, p->proto);
	__u64 mangled = never_zero(p->proto);

	if (bpf_skb_load_bytes(skb, start, scratch->buf, 2) < 0)
		return -1;
	address_words(p, old, w->src_hi, w->src_lo, w->dst_hi, w->dst_lo);
	address_words(p, new, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo);
	__u64 diff = (__u64)(__u32)~old[0] + (__u32)~old[1] + new[0] + new[1];
	diff = (diff & 0xffffffff) + (diff >> 32);
	diff = (diff & 0xffffffff) + (diff >> 32);
	*(__u16 *)scratch->buf = replace(*(__u16 *)scratch->buf, old, new);
	__builtin_memcpy(scratch->buf + 2, new, 8);
	*(__be32 *)(scratch->buf + 10) = be32(p->ports);
	if (bpf_l4_csum_replace(skb, at, 0, diff, mangled | BPF_F_PSEUDO_HDR) < 0)
		return -1;
	if (p->ports != w->ports &&
	    bpf_l4_csum_replace(skb, at, be32(w->ports), be32(p->ports), 4 | mangled) < 0)
		return -1;
	return bpf_skb_store_bytes(skb, start, scratch->buf, IP4_SUMMED, 0);
}

// rewrite_frame writes the fields of the packet into the frame.
__noinline int rewrite_frame(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return -1;
	const struct packet *p = &c->packet;
	struct nat *nat = &c->nat;
	struct scratch *scratch = &c->scratch;
	if (!nat->translated)
		return 0;
	int plain = p->version == 4 && p->l4 == 20 && !(p->frag & (FRAG_FIRST | FRAG_LATER)) &&
		    (p->proto == PROTO_TCP || p->proto == PROTO_UDP);
	if (plain ? rewrite_plain(skb, p, nat, scratch) < 0 :
		    mangle_addresses(skb, p, nat, scratch) < 0 || mangle_ports(skb, p, nat) < 0)
		return -1;
	nat->translated = 0;
	return 0;
}

// rewrite_quote translates the packet that an ICMP error quotes, which was read last. nat->new is
// the tuple of an answer to that packet. The quoted packet's own transport checksum stays: no
// receiver checks it.
static __always_inline long rewrite_quote(struct __sk_buff *skb, struct cpu *c)
{
	const struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	struct scratch *scratch = &c->scratch;
	__be32 *old = scratch->old_words, *new = scratch->new_words;
	struct tuple *g = &nat->new;
	__u32 quote = p->l3 + p->payload, sum = p->l3 + p->l4 + 2, four = p->version == 4;
	__u8 proto = look->quote_proto;

	address_words(p, new, g->dst_hi, g->dst_lo, g->src_hi, g->src_lo);
	// the changes of the header and of its checksum cancel each other out in the sum over
	// both
	if (four) {
		if (bpf_skb_load_bytes(skb, quote + 12, old, 8) < 0)
			return -1;
		__u64 diff = (__u32)bpf_csum_diff(old, 8, new, 8, 0);
		if (bpf_l3_csum_replace(skb, quote + 10, 0, diff, 0) < 0 ||
		    bpf_skb_store_bytes(skb, quote + 12, new, 8, 0) < 0)
			return -1;
	} else {
		if (bpf_skb_load_bytes(skb, quote + 8, old, 32) < 0)
			return -1;
		__u64 diff = (__u32)bpf_csum_diff(old, 32, new, 32, 0);
		if (bpf_l4_csum_replace(skb, sum, 0, diff, 0) < 0 ||
		    bpf_skb_store_bytes(skb, quote + 8, new, 32, 0) < 0)
			return -1;
	}
	if (proto != PROTO_TCP && proto != PROTO_UDP && proto != PROTO_UDPLITE &&
	    proto != PROTO_ICMP && proto != PROTO_ICMPV6)
		return 0;
	int icmp = proto == PROTO_ICMP || proto == PROTO_ICMPV6;
	__u32 at = p->l3 + look->quote_at + (icmp ? 4 : 0);
	__u32 turned = g->ports << 16 | g->ports >> 16;
	__be32 was = 0, ports = be32(turned);
	if (bpf_skb_load_bytes(skb, at, &was, 4) < 0)
		return -1;
	if (icmp)
		// little endian: the id lies first
		ports = be16(icmp_id(p->version, look->quote_type, turned)) | (was & 0xffff0000);
	if (bpf_l4_csum_replace(skb, sum, was, ports, 4) < 0)
		return -1;
	return bpf_skb_store_bytes(skb, at, &ports, 4, 0);
}

// rewrite_error translates an ICMP error together with the packet that it quotes. nat->new is the
// tuple of an answer to that packet.
__noinline int rewrite_error(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return -1;
	struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct nat *nat = &c->nat;
	struct tuple *g = &nat->new;
	// The error comes from the other end, or from a router in between.
	__u64 end_hi = look->from ? look->key.high_hi : look->key.low_hi,
	      end_lo = look->from ? look->key.high_lo : look->key.low_lo;
	if (p->src_hi != end_hi || p->src_lo != end_lo) {
		end_hi = p->src_hi;
		end_lo = p->src_lo;
	} else {
		end_hi = g->src_hi;
		end_lo = g->src_lo;
	}
	if (rewrite_quote(skb, c) < 0)
		return -1;
	g->src_hi = end_hi;
	g->src_lo = end_lo;
	apply_tuple(p, nat, g);
	return rewrite_frame(skb, c);
}

// age4 decrements the time to live of an IPv4 header, RFC 1141.
static __always_inline void age4(__u8 *ip)
{
	__u32 sum = *(__u16 *)(ip + 10) + (__u32)be16(0x0100);

	*(__u16 *)(ip + 10) = sum + (sum >= 0xffff);
	ip[8]--;
}

static __always_inline long age6(struct __sk_buff *skb, const struct packet *p)
{
	__u8 hops = p->ttl - 1;

	return bpf_skb_store_bytes(skb, p->l3 + 7, &hops, 1, BPF_F_RECOMPUTE_CSUM);
}
