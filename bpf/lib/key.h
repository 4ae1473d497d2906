// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The key of a flow: flow.KeyOf, and packet.Inner for the packet that an ICMP error quotes
// (section 10 of the decoder's page).
#pragma once

#include "parse.h"

enum keyed { KEY_UNKNOWN, KEY_NONE, KEY_SET };

// A key with a link-local end holds its link, in the upper half of the link-local addresses:
// flow/link.go explains which and why.
#define LINK_LOCAL (0xfe80ULL << 48)
#define ON_LINK (1ULL << 40)
#define ON_LINK_FOUR (1ULL << 41)
#define LOCAL_FOUR 0xffffa9feULL // 169.254.0.0/16, shifted

static __always_inline int is_local6(__u64 hi)
{
	return hi >> 54 == 0xfe80 >> 6;
}

// link_local: the key of a flow between these ends holds a link.
static __always_inline int link_local(__u64 sh, __u64 sl, __u64 dh, __u64 dl)
{
	return is_local6(sh) || is_local6(dh) ||
	       (!(sh | dh) && sl >> 16 == LOCAL_FOUR && dl >> 16 == LOCAL_FOUR);
}

// on_link writes the link into look->key. The order of the ends stays.
static __always_inline void on_link(const struct packet *p, struct lookup *look)
{
	struct key *k = &look->key;
	__u64 link = p->dir == DIR_IN ? p->recv : p->xmit;

	if (!(k->low_hi | k->high_hi)) {
		k->low_hi = k->high_hi = LINK_LOCAL | ON_LINK_FOUR | link;
		return;
	}
	// Other addresses of fe80::/10 leave no bits for the link, and are not in use.
	if (is_local6(k->low_hi)) {
		if (k->low_hi != LINK_LOCAL)
			look->keyed = KEY_NONE;
		k->low_hi |= ON_LINK | link;
	}
	if (is_local6(k->high_hi)) {
		if (k->high_hi != LINK_LOCAL)
			look->keyed = KEY_NONE;
		k->high_hi |= ON_LINK | link;
	}
}

// off_link returns the upper half of an address of a key without the link.
static __always_inline __u64 off_link(__u64 hi)
{
	return hi >> 48 != 0xfe80 ? hi : hi & ON_LINK_FOUR ? 0 : LINK_LOCAL;
}

// source_hi returns the upper half of an address of a key, by which a source counts. That of IPv6
// has its link, since all links have the same link-local addresses.
static __always_inline __u64 source_hi(__u64 hi)
{
	return hi >> 48 == 0xfe80 && hi & ON_LINK_FOUR ? 0 : hi;
}

// order_ends sets the ends and the ports of a key, and returns 1 if the high end is the sender.
static __always_inline int order_ends(struct key *k, __u64 sh, __u64 sl, __u64 dh, __u64 dl,
				      __u32 ports)
{
	int swap = sh != dh ? sh > dh : sl != dl ? sl > dl : ports >> 16 > (ports & 0xffff);

	k->low_hi = swap ? dh : sh;
	k->low_lo = swap ? dl : sl;
	k->high_hi = swap ? sh : dh;
	k->high_lo = swap ? sl : dl;
	k->ports = swap ? ports << 16 | ports >> 16 : ports;
	return swap;
}

// canonical orders the ends and sets which one sent the packet.
static __always_inline void canonical(const struct packet *p, struct lookup *look, __u64 sh,
				      __u64 sl, __u64 dh, __u64 dl, __u32 ports, __u8 proto)
{
	look->from = order_ends(&look->key, sh, sl, dh, dl, ports);
	look->key.proto = proto;
	look->keyed = KEY_SET;
	look->hashed = 0;
	if (unlikely(link_local(sh, sl, dh, dl)))
		on_link(p, look);
}

// quote_headers moves look->quote_at and look->quote_proto past the quoted IPv6 extension headers.
// 0: there is no flow.
static __always_inline int quote_headers(struct __sk_buff *skb, const struct packet *p,
					 struct lookup *look, struct scratch *scratch)
{
	for (int i = 0; i < MAX_EXT; i++) {
		__u8 proto = READ_ONCE(look->quote_proto);
		__u32 left = READ_ONCE(p->len) - READ_ONCE(look->quote_at);
		if (!is_extension(proto))
			return 1;
		if (left < 8 ||
		    bpf_skb_load_bytes(skb, p->l3 + look->quote_at, scratch->buf, 8) < 0)
			return 0;
		__u32 size = extension_size(proto, scratch->buf, left);
		if (!size || (proto == PROTO_FRAGMENT && get16(scratch->buf + 2) & 0xfff8))
			return 0;
		look->quote_proto = scratch->buf[0];
		look->quote_at += size;
	}
	return !is_extension(look->quote_proto);
}

// quote_ports reads the quoted transport header: the ports, if the protocol has any, and
// look->quote_seq. 0: there is no flow.
static __always_inline int quote_ports(struct __sk_buff *skb, const struct packet *p,
				       struct lookup *look, struct scratch *scratch, __u32 *ports)
{
	__u8 proto = look->quote_proto, icmp = p->version == 4 ? PROTO_ICMP : PROTO_ICMPV6;

	if (proto != PROTO_TCP && proto != PROTO_UDP && proto != PROTO_SCTP &&
	    proto != PROTO_UDPLITE && proto != icmp)
		return 1;
	if (p->len - look->quote_at < 8 ||
	    bpf_skb_load_bytes(skb, p->l3 + look->quote_at, scratch->buf, 8) < 0)
		return 0;
	look->quote_seq = get32(scratch->buf + 4);
	*ports = get32(scratch->buf);
	if (proto != icmp)
		return 1;
	look->quote_type = scratch->buf[0];
	*ports = icmp_ports(p->version, look->quote_type, look->quote_seq);
	return *ports != 0; // or the quoted packet is an error, too
}

// read_quote sets the key and look->quote_seq from the packet that an ICMP error quotes, and
// look->from to the end that this packet was sent to. An error goes to the sender of the packet
// that it quotes: an error to another address belongs to no flow (CVE-2019-5598). The addresses of
// both packets are as in the frame, or both as translated.
__noinline int read_quote(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct lookup *look = &c->look;
	struct scratch *scratch = &c->scratch;
	__u64 sh, sl, dh, dl;

	look->keyed = KEY_NONE;
	look->quote_at = p->payload;
	__u32 n = p->len - p->payload;
	const struct ip4 *four = (const struct ip4 *)scratch->buf;
	const struct ip6 *six = (const struct ip6 *)scratch->buf;
	if (n < sizeof(*four) ||
	    bpf_skb_load_bytes(skb, p->l3 + look->quote_at, scratch->buf, sizeof(*four)) < 0)
		return 0;
	if (ip_version(four) != p->version)
		return 0;
	if (p->version == 4) {
		__u32 ihl = (four->version_ihl & 15) * 4;
		if (ihl < sizeof(*four) || ihl > n || be16(four->frag) & IP4_OFFSET)
			return 0;
		look->quote_proto = four->proto;
		sh = dh = 0;
		sl = mapped(four->src);
		dl = mapped(four->dst);
		look->quote_at += ihl;
	} else {
		if (n < sizeof(*six) ||
		    bpf_skb_load_bytes(skb, p->l3 + look->quote_at, scratch->buf, sizeof(*six)) < 0)
			return 0;
		sh = be64(six->src_hi);
		sl = be64(six->src_lo);
		dh = be64(six->dst_hi);
		dl = be64(six->dst_lo);
		if (is_mapped(sh, sl) || is_mapped(dh, dl))
			return 0;
		look->quote_proto = six->next;
		look->quote_at += sizeof(*six);
		if (!quote_headers(skb, p, look, scratch))
			return 0;
	}
	if (sh != p->dst_hi || sl != p->dst_lo)
		return 0;
	__u32 ports = 0;
	if (!quote_ports(skb, p, look, scratch, &ports))
		return 0;
	canonical(p, look, sh, sl, dh, dl, ports, look->quote_proto);
	look->from ^= 1;
	return look->keyed == KEY_SET;
}

// make_key sets look->key, and look->keyed to KEY_NONE if the packet belongs to no flow.
static __always_inline void make_key(struct __sk_buff *skb, struct cpu *c, const struct packet *p,
				     struct lookup *look)
{
	__u32 ports = p->ports;

	look->is_error = 0;
	if (p->frag & FRAG_LATER) {
		look->keyed = KEY_NONE;
		return;
	}
	if (is_icmp(p)) {
		if (is_icmp_error(p->version, p->icmp_type)) {
			look->is_error = 1;
			read_quote(skb, c);
			return;
		}
		ports = icmp_ports(p->version, p->icmp_type, p->seq);
		if (!ports) {
			look->keyed = KEY_NONE;
			return;
		}
	}
	canonical(p, look, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, ports, p->proto);
}
