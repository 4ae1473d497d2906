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

__always_inline int is_local6(__u64 hi)
{
	return hi >> 54 == 0xfe80 >> 6;
}

// link_local: the key of a flow between these ends holds a link.
__always_inline int link_local(__u64 sh, __u64 sl, __u64 dh, __u64 dl)
{
	return is_local6(sh) || is_local6(dh) ||
	       (!(sh | dh) && sl >> 16 == LOCAL_FOUR && dl >> 16 == LOCAL_FOUR);
}

// on_link writes the link into p->key. The order of the ends stays.
__always_inline void on_link(struct pkt *p)
{
	struct key *k = &p->key;
	__u64 link = p->dir == DIR_IN ? p->recv : p->xmit;

	if (!(k->low_hi | k->high_hi)) {
		k->low_hi = k->high_hi = LINK_LOCAL | ON_LINK_FOUR | link;
		return;
	}
	// Other addresses of fe80::/10 leave no bits for the link, and are not in use.
	if (is_local6(k->low_hi)) {
		if (k->low_hi != LINK_LOCAL)
			p->keyed = KEY_NONE;
		k->low_hi |= ON_LINK | link;
	}
	if (is_local6(k->high_hi)) {
		if (k->high_hi != LINK_LOCAL)
			p->keyed = KEY_NONE;
		k->high_hi |= ON_LINK | link;
	}
}

// off_link returns the upper half of an address of a key without the link.
__always_inline __u64 off_link(__u64 hi)
{
	return hi >> 48 != 0xfe80 ? hi : hi & ON_LINK_FOUR ? 0 : LINK_LOCAL;
}

// canonical orders the ends and sets which one sent the packet.
__always_inline void canonical(struct pkt *p, __u64 sh, __u64 sl, __u64 dh, __u64 dl, __u32 ports,
			       __u8 proto)
{
	int swap = sh != dh ? sh > dh : sl != dl ? sl > dl : ports >> 16 > (ports & 0xffff);

	p->key.low_hi = swap ? dh : sh;
	p->key.low_lo = swap ? dl : sl;
	p->key.high_hi = swap ? sh : dh;
	p->key.high_lo = swap ? sl : dl;
	p->key.ports = swap ? ports << 16 | ports >> 16 : ports;
	p->key.proto = proto;
	p->from = swap;
	p->keyed = KEY_SET;
	p->hashed = 0;
	if (unlikely(link_local(sh, sl, dh, dl)))
		on_link(p);
}

// quote_headers steps over the quoted IPv6 extension headers from p->at on; p->quote_proto moves
// along. 0: there is no flow.
__always_inline int quote_headers(struct __sk_buff *skb, struct pkt *p)
{
	for (int i = 0; i < MAX_EXT; i++) {
		__u8 proto = READ_ONCE(p->quote_proto);
		__u32 left = READ_ONCE(p->len) - READ_ONCE(p->at);
		if (!is_extension(proto))
			return 1;
		if (left < 8 || bpf_skb_load_bytes(skb, p->l3 + p->at, p->buf, 8) < 0)
			return 0;
		__u32 size = extension_size(proto, p->buf, left);
		if (!size || (proto == PROTO_FRAGMENT && get16(p->buf + 2) & 0xfff8))
			return 0;
		p->quote_proto = p->buf[0];
		p->at += size;
	}
	return !is_extension(p->quote_proto);
}

// read_quote sets the key from the packet that an ICMP error quotes, turned round, and
// p->quote_seq. An error goes to the sender of the packet that it quotes: one that goes elsewhere
// belongs to no flow (CVE-2019-5598). Both addresses are as in the frame, or both as translation
// left them.
__noinline int read_quote(struct __sk_buff *skb)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	struct pkt *p = &c->p;
	__u64 sh, sl, dh, dl;

	p->keyed = KEY_NONE;
	p->at = p->payload;
	__u32 n = p->len - p->payload;
	if (n < 20 || bpf_skb_load_bytes(skb, p->l3 + p->at, p->buf, 20) < 0)
		return 0;
	if (p->buf[0] >> 4 != p->version)
		return 0;
	if (p->version == 4) {
		__u32 ihl = (p->buf[0] & 15) * 4;
		if (ihl < 20 || ihl > n || get16(p->buf + 6) & 0x1fff)
			return 0;
		p->quote_proto = p->buf[9];
		sh = dh = 0;
		sl = (__u64)MAPPED << 32 | get32(p->buf + 12);
		dl = (__u64)MAPPED << 32 | get32(p->buf + 16);
		p->at += ihl;
	} else {
		if (n < 40 || bpf_skb_load_bytes(skb, p->l3 + p->at, p->buf, 40) < 0)
			return 0;
		sh = get64(p->buf + 8);
		sl = get64(p->buf + 16);
		dh = get64(p->buf + 24);
		dl = get64(p->buf + 32);
		if (is_mapped(sh, sl) || is_mapped(dh, dl))
			return 0;
		p->quote_proto = p->buf[6];
		p->at += 40;
		if (!quote_headers(skb, p))
			return 0;
	}
	if (sh != p->dst_hi || sl != p->dst_lo)
		return 0;
	__u8 proto = p->quote_proto;
	__u32 ports = 0, icmp = p->version == 4 ? PROTO_ICMP : PROTO_ICMPV6;
	if (proto == PROTO_TCP || proto == PROTO_UDP || proto == PROTO_SCTP ||
	    proto == PROTO_UDPLITE || proto == icmp) {
		if (p->len - p->at < 8 || bpf_skb_load_bytes(skb, p->l3 + p->at, p->buf, 8) < 0)
			return 0;
		p->quote_seq = get32(p->buf + 4);
		ports = get32(p->buf);
		if (proto == icmp) {
			p->quote_type = p->buf[0];
			ports = icmp_ports(p->version, p->quote_type, p->quote_seq);
			if (!ports) // an error, too
				return 0;
		}
	}
	canonical(p, sh, sl, dh, dl, ports, proto);
	p->from ^= 1;
	return p->keyed == KEY_SET;
}

// make_key sets the key of the packet, once.
__always_inline void make_key(struct __sk_buff *skb, struct pkt *p)
{
	__u32 ports = p->ports;

	p->is_error = 0;
	if (p->frag & FRAG_LATER) {
		p->keyed = KEY_NONE;
		return;
	}
	if (is_icmp(p)) {
		if (error_type(p->version, p->icmp_type)) {
			p->is_error = 1;
			read_quote(skb);
			return;
		}
		ports = icmp_ports(p->version, p->icmp_type, p->seq);
		if (!ports) {
			p->keyed = KEY_NONE;
			return;
		}
	}
	canonical(p, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, ports, p->proto);
}
