// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The fields of one packet: the part of the decoder that reads only fixed headers. Section numbers
// are those of docs/design/0002-decoder.md. packet.Packet.Decode gives the same fields and the same
// reason for the same bytes.
#pragma once

#include "headers.h"

enum parsed { PARSED_IP, PARSED_ARP, PARSED_OTHER };
enum {
	NO_SCALE = 0xff,
	NO_CHUNK = 0xff,
	MAX_EXT = 8,
	MAX_OPTIONS = 40,
	SCTP_HEADER = 12,
	MAX_HOP_OPTIONS = 16
};

// Kinds of options that IPv4 and TCP have in common, and the mark of an invalid one.
enum { OPTION_BAD = -1, OPTION_END, OPTION_PAD };

struct option {
	int kind; // or OPTION_BAD: its length is invalid
	__u32 at; // where it lies in scratch->buf
	__u32 len;
};

// next_option steps over one of the options of an IPv4 or a TCP header, in scratch->buf from
// scratch->at to scratch->end. A caller makes at most MAX_OPTIONS steps.
static __always_inline struct option next_option(struct scratch *scratch)
{
	__u32 at = READ_ONCE(scratch->at), left = READ_ONCE(scratch->end) - at;
	struct option o = {.at = at, .kind = OPTION_END};

	if (!left || left > 64 || at > 62)
		return o;
	__u8 kind = scratch->buf[at & 63];
	__u32 len = scratch->buf[(at + 1) & 63];
	o.kind = kind;
	if (kind == OPTION_END)
		return o;
	if (kind == OPTION_PAD) {
		WRITE_ONCE(scratch->at, at + 1);
		return o;
	}
	if (left < 2 || len < 2 || len > left) {
		o.kind = OPTION_BAD;
		return o;
	}
	o.len = len;
	WRITE_ONCE(scratch->at, at + len);
	return o;
}

static __always_inline int refuse(struct packet *p, __u8 reason)
{
	p->version = 0;
	p->proto = 0;
	p->len = 0;
	p->frag = 0;
	p->reason = reason;
	return PARSED_IP;
}

static __always_inline int stop(struct packet *p, __u8 reason)
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

static __always_inline int stop_short(struct packet *p, __u8 reason)
{
	return stop(p, p->frag & FRAG_FIRST ? DECODE_FRAG_TINY : reason);
}

static __always_inline int transport_tcp(struct packet *p, const void *t, __u32 n)
{
	const struct tcp *tcp = t;
	if (n < sizeof(*tcp))
		return stop_short(p, DECODE_TRANSPORT);
	__u32 header = tcp_header(tcp->offset);
	if (header < sizeof(*tcp))
		return stop(p, DECODE_TCP_OFFSET);
	if (header > n)
		return stop_short(p, DECODE_TCP_OFFSET);
	p->ports = get32(t);
	p->seq = be32(tcp->seq);
	p->ack = be32(tcp->ack);
	p->tcp_flags = tcp->flags;
	p->window = be16(tcp->window);
	p->payload = p->l4 + header;
	return PARSED_IP;
}

// transport reads the upper-layer header, section 8. t can be read for 20 bytes, of which the
// packet has n.
static __always_inline int transport(struct packet *p, const void *t, __u32 n)
{
	const struct udp *udp = t;
	const struct icmp *icmp = t;
	__u8 first = p->frag & FRAG_FIRST;
	__u8 proto = p->proto;

	stop(p, DECODE_OK);
	if (proto == PROTO_TCP)
		return transport_tcp(p, t, n);
	if (proto == PROTO_UDP) {
		if (n < sizeof(*udp))
			return stop_short(p, DECODE_TRANSPORT);
		__u32 length = be16(udp->len);
		if (length < sizeof(*udp) || (length > n && !first))
			return stop(p, DECODE_UDP_LENGTH);
		p->ports = get32(t);
		p->payload = p->l4 + sizeof(*udp);
		return PARSED_IP;
	}
	if ((proto == PROTO_ICMP && p->version == 4) ||
	    (proto == PROTO_ICMPV6 && p->version == 6)) {
		if (n < sizeof(*icmp))
			return stop_short(p, DECODE_TRANSPORT);
		p->icmp_type = icmp->type;
		p->icmp_code = icmp->code;
		p->seq = be32(icmp->rest);
		p->payload = p->l4 + sizeof(*icmp);
		return PARSED_IP;
	}
	if (proto == PROTO_SCTP) {
		if (n < SCTP_HEADER)
			return stop_short(p, DECODE_TRANSPORT);
		p->ports = get32(t);
		p->seq = get32(t + 4);
		p->payload = p->l4 + SCTP_HEADER;
		return PARSED_IP;
	}
	if (proto == PROTO_UDPLITE) {
		if (n < sizeof(*udp))
			return stop_short(p, DECODE_TRANSPORT);
		__u32 cover = be16(udp->len);
		if (cover && (cover < sizeof(*udp) || (cover > n && !first)))
			return stop(p, DECODE_UDPLITE_COVER);
		p->ports = get32(t);
		p->payload = p->l4 + sizeof(*udp);
	}
	return PARSED_IP;
}

// fragment records a fragment, section 7, and reports whether the decode ends here.
static __always_inline int fragment(struct packet *p, __u32 off, __u32 more, __u32 data,
				    __u32 front)
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

// read_ip4 and read_ip6 set the fields of the fixed header. They return 0, or a reason to refuse.
static __always_inline __u8 read_ip4(struct packet *p, const struct ip4 *h, __u32 total)
{
	__u32 ihl = (h->version_ihl & 15) * 4;

	if (ihl < sizeof(*h))
		return DECODE_IHL;
	if (total < ihl || total > p->buffer)
		return DECODE_LENGTH;
	p->src_hi = 0;
	p->src_lo = mapped(h->src);
	p->dst_hi = 0;
	p->dst_lo = mapped(h->dst);
	p->ip_id = be16(h->id);
	p->len = total;
	p->l4 = ihl;
	p->frag_off = 0;
	p->frag = be16(h->frag) >> 8 & (FRAG_MF | FRAG_DF | FRAG_RF);
	p->version = 4;
	p->proto = h->proto;
	p->ttl = h->ttl;
	p->tos = h->tos;
	p->ip_options = 0;
	p->ext_hdrs = 0;
	p->jumbo = 0;
	return 0;
}

static __always_inline __u8 read_ip6(struct packet *p, const struct ip6 *h, __u32 total)
{
	if (total > p->buffer)
		return DECODE_LENGTH;
	p->src_hi = be64(h->src_hi);
	p->src_lo = be64(h->src_lo);
	p->dst_hi = be64(h->dst_hi);
	p->dst_lo = be64(h->dst_lo);
	if (is_mapped(p->src_hi, p->src_lo) || is_mapped(p->dst_hi, p->dst_lo))
		return DECODE_MAPPED;
	p->ip_id = 0;
	p->len = total;
	p->l4 = sizeof(*h);
	p->frag_off = 0;
	p->frag = 0;
	p->version = 6;
	p->proto = h->next;
	p->ttl = h->hops;
	p->tos = ip6_tos(h);
	p->ip_options = 0;
	p->ext_hdrs = 0;
	p->jumbo = 0;
	return 0;
}

// is_icmp: the ICMP fields are set. is_icmp_error: this type is an error, which quotes a packet.
static __always_inline int is_icmp(const struct packet *p)
{
	return !p->reason && !(p->frag & FRAG_LATER) &&
	       ((p->version == 4 && p->proto == PROTO_ICMP) ||
		(p->version == 6 && p->proto == PROTO_ICMPV6));
}

static __always_inline int is_icmp_error(__u8 version, __u8 type)
{
	if (version == 6)
		return type >= 1 && type <= 4;
	return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

// is_icmp_query: an ICMP message of this type is a query. icmp_query_type returns the type of the
// query that it answers, 0 if it is not an answer. Both: packet.Packet.ICMPQueryType.
static __always_inline int is_icmp_query(__u8 version, __u8 type)
{
	if (version == 6)
		return type == 128 || type == 139;
	return type == 8 || type == 13 || type == 15 || type == 17;
}

static __always_inline __u8 icmp_query_type(__u8 version, __u8 type)
{
	if (version == 6)
		return type == 129 || type == 140 ? type - 1 : 0;
	return !type ? 8 : type == 14 || type == 16 || type == 18 ? type - 1 : 0;
}

// icmp_ports returns what takes the place of the ports of a query or its answer, as in flow.KeyOf.
// For the end that asks it is the id. For the end that answers it is the id plus the type of the
// query. `word` is bytes 4 to 7 of the message. For other messages it returns 0.
static __always_inline __u32 icmp_ports(__u8 version, __u8 type, __u32 word)
{
	__u32 id = word >> 16, query = icmp_query_type(version, type);

	if (is_icmp_query(version, type))
		return id << 16 | ((id + type) & 0xffff);
	return query ? (id + query) << 16 | id : 0;
}

// icmp_id returns the id from such ports.
static __always_inline __u32 icmp_id(__u8 version, __u8 type, __u32 ports)
{
	return is_icmp_query(version, type) ? ports >> 16 : ports & 0xffff;
}

// essential: section 9.
static __always_inline int essential(const struct packet *p)
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
