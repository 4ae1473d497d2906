// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fields of one packet: the part of the decoder that needs no more than fixed headers. The
// decoder of docs/design/0002-decoder.md; section numbers here are those of that page.
// packet.Packet.Decode gives the same fields and the same reason for the same bytes.
#pragma once

#include "maps.h"

enum parsed { PARSED_IP, PARSED_ARP, PARSED_OTHER };
enum { ETH_IP = 0x0800, ETH_ARP = 0x0806, ETH_IPV6 = 0x86dd };
enum { MAPPED = 0xffff, NO_SCALE = 0xff, NO_CHUNK = 0xff, MAX_EXT = 8, MAX_HOP_OPTIONS = 16 };

__always_inline __u16 get16(const __u8 *b)
{
	return be16(*(const __u16 *)b);
}

__always_inline __u32 get32(const __u8 *b)
{
	return be32(*(const __u32 *)b);
}

__always_inline __u64 get64(const __u8 *b)
{
	return be64(*(const __u64 *)b);
}

__always_inline void put64(__be32 *to, __u64 v)
{
	to[0] = be32((__u32)(v >> 32));
	to[1] = be32((__u32)v);
}

__always_inline int refuse(struct pkt *p, __u8 reason)
{
	p->version = 0;
	p->proto = 0;
	p->len = 0;
	p->frag = 0;
	p->reason = reason;
	return PARSED_IP;
}

__always_inline int stop(struct pkt *p, __u8 reason)
{
	p->ports = 0;
	p->seq = 0;
	p->ack = 0;
	p->window = 0;
	p->tcp_flags = 0;
	p->icmp_type = 0;
	p->icmp_code = 0;
	p->payload = p->l4;
	p->reason = reason;
	return PARSED_IP;
}

__always_inline int stop_short(struct pkt *p, __u8 reason)
{
	return stop(p, p->frag & FRAG_FIRST ? DECODE_FRAG_TINY : reason);
}

// transport reads the upper-layer header, section 8. t can be read for 20 bytes, of which the
// packet has n.
__always_inline int transport(struct pkt *p, const __u8 *t, __u32 n)
{
	__u8 first = p->frag & FRAG_FIRST;
	__u8 proto = p->proto;

	stop(p, DECODE_OK);
	if (proto == PROTO_TCP) {
		if (n < 20)
			return stop_short(p, DECODE_TRANSPORT);
		__u32 header = (t[12] >> 4) * 4;
		if (header < 20)
			return stop(p, DECODE_TCP_OFFSET);
		if (header > n)
			return stop_short(p, DECODE_TCP_OFFSET);
		p->ports = get32(t);
		p->seq = get32(t + 4);
		p->ack = get32(t + 8);
		p->tcp_flags = t[13];
		p->window = get16(t + 14);
		p->payload = p->l4 + header;
		return PARSED_IP;
	}
	if (proto == PROTO_UDP) {
		if (n < 8)
			return stop_short(p, DECODE_TRANSPORT);
		__u32 length = get16(t + 4);
		if (length < 8 || (length > n && !first))
			return stop(p, DECODE_UDP_LENGTH);
		p->ports = get32(t);
		p->payload = p->l4 + 8;
		return PARSED_IP;
	}
	if ((proto == PROTO_ICMP && p->version == 4) ||
	    (proto == PROTO_ICMPV6 && p->version == 6)) {
		if (n < 8)
			return stop_short(p, DECODE_TRANSPORT);
		p->icmp_type = t[0];
		p->icmp_code = t[1];
		p->seq = get32(t + 4);
		p->payload = p->l4 + 8;
		return PARSED_IP;
	}
	if (proto == PROTO_SCTP) {
		if (n < 12)
			return stop_short(p, DECODE_TRANSPORT);
		p->ports = get32(t);
		p->seq = get32(t + 4);
		p->payload = p->l4 + 12;
		return PARSED_IP;
	}
	if (proto == PROTO_UDPLITE) {
		if (n < 8)
			return stop_short(p, DECODE_TRANSPORT);
		__u32 cover = get16(t + 4);
		if (cover && (cover < 8 || (cover > n && !first)))
			return stop(p, DECODE_UDPLITE_COVER);
		p->ports = get32(t);
		p->payload = p->l4 + 8;
	}
	return PARSED_IP;
}

// fragment records a fragment, section 7, and reports whether the decode ends here.
__always_inline int fragment(struct pkt *p, __u32 off, __u32 more, __u32 data, __u32 front)
{
	p->frag_off = off;
	p->frag_end = off + data;
	p->frag |= (more ? FRAG_MF : 0) | (off ? FRAG_LATER : FRAG_FIRST);
	if (!data || (more && data % 8))
		stop(p, DECODE_FRAG_LENGTH);
	else if (front + off + data > 65535)
		stop(p, DECODE_FRAG_END);
	else if (!off)
		return 0;
	else if (off < 20 && p->proto == PROTO_TCP)
		stop(p, DECODE_FRAG_OVERLAP);
	else
		stop(p, DECODE_OK);
	return 1;
}

// read_ip4 and read_ip6 set the fields of the fixed header at b, of which 20 and 40 bytes can be
// read. They return 0, or a reason to refuse.
__always_inline __u8 read_ip4(struct pkt *p, const __u8 *b, __u32 total)
{
	__u32 ihl = (b[0] & 15) * 4;

	if (ihl < 20)
		return DECODE_IHL;
	if (total < ihl || total > p->buffer)
		return DECODE_LENGTH;
	p->src_hi = 0;
	p->src_lo = (__u64)MAPPED << 32 | get32(b + 12);
	p->dst_hi = 0;
	p->dst_lo = (__u64)MAPPED << 32 | get32(b + 16);
	p->ip_id = get16(b + 4);
	p->len = total;
	p->l4 = ihl;
	p->frag_off = 0;
	p->frag = b[6] & (FRAG_MF | FRAG_DF | FRAG_RF);
	p->version = 4;
	p->proto = b[9];
	p->ttl = b[8];
	p->tos = b[1];
	p->ip_options = 0;
	p->ext_hdrs = 0;
	p->jumbo = 0;
	return 0;
}

__always_inline int is_mapped(__u64 hi, __u64 lo)
{
	return !hi && lo >> 32 == MAPPED;
}

__always_inline __u8 read_ip6(struct pkt *p, const __u8 *b, __u32 total)
{
	if (total > p->buffer)
		return DECODE_LENGTH;
	p->src_hi = get64(b + 8);
	p->src_lo = get64(b + 16);
	p->dst_hi = get64(b + 24);
	p->dst_lo = get64(b + 32);
	if (is_mapped(p->src_hi, p->src_lo) || is_mapped(p->dst_hi, p->dst_lo))
		return DECODE_MAPPED;
	p->ip_id = 0;
	p->len = total;
	p->l4 = 40;
	p->frag_off = 0;
	p->frag = 0;
	p->version = 6;
	p->proto = b[6];
	p->ttl = b[7];
	p->tos = b[0] << 4 | b[1] >> 4;
	p->ip_options = 0;
	p->ext_hdrs = 0;
	p->jumbo = 0;
	return 0;
}

// is_icmp: the ICMP fields are set. is_icmp_error: it quotes a packet.
__always_inline int is_icmp(struct pkt *p)
{
	return !p->reason && !(p->frag & FRAG_LATER) &&
	       ((p->version == 4 && p->proto == PROTO_ICMP) ||
		(p->version == 6 && p->proto == PROTO_ICMPV6));
}

__always_inline int error_type(__u8 version, __u8 type)
{
	if (version == 6)
		return type >= 1 && type <= 4;
	return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

// asks: an ICMP message of this type is a query. query_of returns the type of the query that it
// answers, 0 if it is not an answer. Both: packet.Packet.ICMPQueryType.
__always_inline int asks(__u8 version, __u8 type)
{
	if (version == 6)
		return type == 128 || type == 139;
	return type == 8 || type == 13 || type == 15 || type == 17;
}

__always_inline __u8 query_of(__u8 version, __u8 type)
{
	if (version == 6)
		return type == 129 || type == 140 ? type - 1 : 0;
	return !type ? 8 : type == 14 || type == 16 || type == 18 ? type - 1 : 0;
}

// icmp_ports returns what stands for the ports of a query or its answer, whose bytes 4 to 7 are
// `word`, as in flow.KeyOf: for the end that asks the id, for the one that answers the id plus the
// type of the query. Other messages have none: 0.
__always_inline __u32 icmp_ports(__u8 version, __u8 type, __u32 word)
{
	__u32 id = word >> 16, query = query_of(version, type);

	if (asks(version, type))
		return id << 16 | ((id + type) & 0xffff);
	return query ? (id + query) << 16 | id : 0;
}

// icmp_id returns the id from such ports.
__always_inline __u32 icmp_id(__u8 version, __u8 type, __u32 ports)
{
	return asks(version, type) ? ports >> 16 : ports & 0xffff;
}

// essential: section 9.
__always_inline int essential(struct pkt *p)
{
	__u8 t = p->icmp_type;

	if (p->version != 6 || p->proto != PROTO_ICMPV6 || p->frag & (FRAG_FIRST | FRAG_LATER) ||
	    p->ext_hdrs & EXT_FRAGMENT)
		return 0;
	if (t >= 133 && t <= 136)
		return p->ttl == 255 && !p->icmp_code;
	if ((t >= 130 && t <= 132) || t == 143)
		return p->ttl == 1 && p->ip_options & OPT_ROUTER_ALERT &&
		       (p->src_hi >> 54 == 0xfe80 >> 6 || !(p->src_hi | p->src_lo));
	return 0;
}
