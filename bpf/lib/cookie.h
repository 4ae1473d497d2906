// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// SYN cookies, docs/design/0003-evaluation.md section 10. While half-open states fill a quarter of
// their limit, a SYN to a service of the host that a rule with keep-state allows gets no state. The
// program answers it with a sequence number that the kernel's own syncookie code makes of the
// addresses and a secret. An acknowledgement that proves knowledge of the number is evaluated as
// the SYN would have been. Its state is established at once, and the stack receives what it needs
// to open the connection, by bpf_sk_assign_tcp_reqsk (Linux 6.8).
//
// What the client's SYN offered is kept where the kernel's own cookies keep it. The cookie holds
// the segment size. The low bits of the time stamp hold window scale and SACK. So a client without
// time stamps gets neither.
#pragma once

#include "reply.h"

enum { TCP_LISTEN = 10 };
enum { TS_SACK = 16, TS_BITS = 63 };

struct sock {
	int unused;
};

struct bpf_tcp_req_attrs {
	__u32 rcv_tsval, rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale, snd_wscale, ecn_ok, wscale_ok, sack_ok, tstamp_ok, usec_ts_ok;
	__u8 reserved[3];
};

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk,
				   struct bpf_tcp_req_attrs *attrs, int attrs__sz)
	__attribute__((section(".ksyms"), weak));

// socket_of returns the socket of the host that gets the packet, or NULL. The caller releases it.
static __always_inline struct bpf_sock *socket_of(struct __sk_buff *skb, const struct packet *p,
						  struct scratch *scratch)
{
	struct bpf_sock_tuple *t = (struct bpf_sock_tuple *)scratch->buf;
	__u32 size =
		sock_tuple(t, p->version, p->src_hi, p->src_lo, p->dst_hi, p->dst_lo, p->ports);

	return bpf_skc_lookup_tcp(skb, t, size, -1, 0);
}

// listener returns the socket that listens where the packet goes. The caller releases it. It
// returns NULL if there is none, if a connection has these ends already, or if the listener speaks
// MPTCP: for that the stack takes no cookies of ours.
static __always_inline struct bpf_sock *listener(struct __sk_buff *skb, const struct packet *p,
						 struct scratch *scratch)
{
	struct bpf_sock *sk = socket_of(skb, p, scratch);
	if (!sk)
		return NULL;
	if (sk->state != TCP_LISTEN || bpf_skc_to_mptcp_sock(sk)) {
		bpf_sk_release(sk);
		return NULL;
	}
	return sk;
}

// is_open: the stack has a connection with the ends of the packet.
static __always_inline int is_open(struct __sk_buff *skb, const struct packet *p,
				   struct scratch *scratch)
{
	struct bpf_sock *sk = socket_of(skb, p, scratch);
	if (!sk)
		return 0;
	int open = sk->state != TCP_LISTEN;
	bpf_sk_release(sk);
	return open;
}

// plain_segment: a segment to an address of the host, in one piece, in a unicast frame.
static __always_inline int plain_segment(struct __sk_buff *skb, const struct packet *p)
{
	return p->kind == PARSED_IP && !p->reason && !(p->frag & (FRAG_FIRST | FRAG_LATER)) &&
	       p->l3 <= 14 && skb->pkt_type == HOST && is_mine(p->version, p->dst_hi, p->dst_lo);
}

// load_header puts the IP header of the packet into h, which has 40 bytes, without options or
// extension headers: the syncookie code reads the addresses alone.
static __always_inline long load_header(struct __sk_buff *skb, const struct packet *p, __u8 *h)
{
	return p->version == 4 ? bpf_skb_load_bytes(skb, p->l3, h, 20) :
				 bpf_skb_load_bytes(skb, p->l3, h, 40);
}

// read_tcp loads the TCP header into scratch->buf, and records what its options say:
// cookie->offered, cookie->ts_value, cookie->ts_echo. It returns the header's length, or 0.
__noinline __u32 read_tcp(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct cookie *cookie = &c->cookie;
	struct scratch *scratch = &c->scratch;
	__u32 n = p->payload - p->l4;

	cookie->offered = 0;
	opaque(n);
	// sized: Linux 7.3 remembers one bound of a difference that two tests bound
	if (n < 20 || n > 60 ||
	    bpf_skb_load_bytes(skb, p->l3 + p->l4, scratch->buf, sized(n, 64)) < 0)
		return 0;
	WRITE_ONCE(scratch->at, 20);
	WRITE_ONCE(scratch->end, p->payload - p->l4);
	for (int i = 0; i < MAX_OPTIONS; i++) {
		struct option o = next_option(scratch);
		if (o.kind == OPTION_END || o.kind == OPTION_BAD)
			break;
		if (o.kind == TCP_SACK && o.len == 2)
			WRITE_ONCE(cookie->offered, READ_ONCE(cookie->offered) | SEEN_SACK);
		if (o.kind == TCP_STAMPS && o.len == 10 && o.at <= 50) {
			WRITE_ONCE(cookie->offered, READ_ONCE(cookie->offered) | SEEN_TS);
			WRITE_ONCE(cookie->ts_value, get32(scratch->buf + ((o.at + 2) & 63)));
			WRITE_ONCE(cookie->ts_echo, get32(scratch->buf + ((o.at + 6) & 63)));
		}
	}
	return p->payload - p->l4;
}

// offer_cookie records in cookie->offer whether a cookie may answer this SYN, or has answered it,
// in case the SYN needs a state.
__noinline int offer_cookie(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf || !plain_segment(skb, &c->packet))
		return 0;
	if (repeated(&c->packet, &c->cookie, cf)) {
		c->cookie.offer = OFFER_REPEATED;
		return 0;
	}
	struct bpf_sock *sk = listener(skb, &c->packet, &c->scratch);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	c->cookie.offer = OFFER_COOKIE;
	return 1;
}

struct answer_header {
	struct tcp tcp;
	__u8 options[20];
};

// cookie_clock is a millisecond clock of this flow.
__noinline __u32 cookie_clock(struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf)
		return 0;
	const struct packet *p = &c->packet;

	return (__u32)((__u64)p->now / 1000000) + (__u32)cookie_hash(p, cf);
}

// cookie_stamp is the time stamp of an answer: cookie_clock, its low bits what the SYN offered.
static __always_inline __u32 cookie_stamp(struct cpu *c, const struct packet *p,
					  const struct cookie *cookie)
{
	__u32 now = cookie_clock(c), bits = p->scale == NO_SCALE ? TS_NO_SCALE : p->scale & 15;

	if (cookie->offered & SEEN_SACK)
		bits |= TS_SACK;
	__u32 stamp = (now & ~(__u32)TS_BITS) | bits;
	return before(now, stamp) ? stamp - (TS_BITS + 1) : stamp;
}

// stamp_options writes the options of an answer with a time stamp: SACK, the stamp, the window
// scale.
static __always_inline void stamp_options(struct cpu *c, __u8 *to, const struct packet *p,
					  const struct cookie *cookie)
{
	__u32 stamp = cookie_stamp(c, p, cookie), echo = cookie->ts_value;
	int sack = cookie->offered & SEEN_SACK, scaled = p->scale != NO_SCALE;

	to[0] = sack ? TCP_SACK : OPTION_PAD;
	to[1] = sack ? 2 : OPTION_PAD;
	to[2] = TCP_STAMPS;
	to[3] = 10;
	to[4] = stamp >> 24;
	to[5] = stamp >> 16;
	to[6] = stamp >> 8;
	to[7] = stamp;
	to[8] = echo >> 24;
	to[9] = echo >> 16;
	to[10] = echo >> 8;
	to[11] = echo;
	to[12] = OPTION_PAD;
	to[13] = scaled ? TCP_SCALE : OPTION_PAD;
	to[14] = scaled ? 3 : OPTION_PAD;
	to[15] = scaled ? COOKIE_SCALE : OPTION_PAD;
}

// make_cookie turns the SYN into the answer.
__noinline int make_cookie(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct gauge *g = gauges_now();
	if (!c || !cf || !g)
		return -1;
	const struct packet *p = &c->packet;
	const struct cookie *cookie = &c->cookie;
	struct scratch *scratch = &c->scratch;
	struct answer_header a = {.tcp = {.flags = TH_SYN | TH_ACK, .window = be16(COOKIE_WINDOW)}};
	__u8 ip[40];
	__u32 mtu = 0, header = p->version == 4 ? 20 : 40, n = read_tcp(skb, c);
	__s64 made;

	opaque(n);
	if (n < 20 || n > 60 || load_header(skb, p, ip) < 0 ||
	    bpf_check_mtu(skb, 0, &mtu, 0, 0) < 0)
		return -1;
	made = p->version == 4 ? bpf_tcp_raw_gen_syncookie_ipv4(ip, scratch->buf, n) :
				 bpf_tcp_raw_gen_syncookie_ipv6(ip, scratch->buf, n);
	if (made < 0)
		return -1;
	mtu -= header + 20;
	a.tcp.src = be16(p->ports & 0xffff);
	a.tcp.dst = be16(p->ports >> 16);
	a.tcp.seq = be32((__u32)made);
	a.tcp.ack = be32(p->seq + 1);
	a.options[0] = TCP_MSS;
	a.options[1] = 4;
	a.options[2] = mtu >> 8;
	a.options[3] = mtu;
	int stamped = cf->cookies & COOKIE_STAMPS && cookie->offered & SEEN_TS;
	if (stamped)
		stamp_options(c, a.options + 4, p, cookie);
	__u32 size = stamped ? 40 : 24;
	opaque(size); // or clang 19 passes it, from the stack, in place of the constants below
	a.tcp.offset = size << 2;
	a.tcp.check = fold(sum((__u32 *)&a, 10) + pseudo_sum(p, PROTO_TCP, size));
	if (bpf_skb_change_tail(skb, p->l3 + header + size, 0) < 0 ||
	    store_ip(skb, p, PROTO_TCP, size) < 0)
		return -1;
	__sync_fetch_and_add(&g->cookies_sent, 1);
	if (stamped)
		return bpf_skb_store_bytes(skb, p->l3 + header, &a, 40, 0);
	return bpf_skb_store_bytes(skb, p->l3 + header, &a, 24, 0);
}

// cookie_segment finds the segment size (MSS) that the SYN before this acknowledgement offered. It
// computes the cookie again for each size that a cookie can encode. A cookie from an earlier minute
// of the kernel's clock gets the smallest size.
__noinline __u32 cookie_segment(struct __sk_buff *skb, struct cpu *c)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	struct {
		struct tcp tcp;
		__u8 mss[4];
	} syn = {.tcp = {.offset = 6 << 4, .flags = TH_SYN}, .mss = {TCP_MSS, 4}};
	__u8 ip[40];
	__u32 most = 65535;

	if (load_header(skb, p, ip) < 0)
		return 0;
	syn.tcp.src = be16(p->ports >> 16);
	syn.tcp.dst = be16(p->ports & 0xffff);
	syn.tcp.seq = be32(p->seq - 1);
	for (int i = 0; i < 4; i++) {
		syn.mss[2] = most >> 8;
		syn.mss[3] = most;
		__s64 made = p->version == 4 ?
				     bpf_tcp_raw_gen_syncookie_ipv4(ip, &syn, sizeof(syn)) :
				     bpf_tcp_raw_gen_syncookie_ipv6(ip, &syn, sizeof(syn));
		if (made < 0)
			break;
		__u32 size = made >> 32 & 0xffff;
		if ((__u32)made == p->ack - 1)
			return size;
		most = size - 1;
	}
	return p->version == 4 ? 536 : 1220;
}

// redeem_cookie checks whether this acknowledgement carries a cookie. If so, it is evaluated as the
// SYN was.
__noinline int redeem_cookie(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	if (!c || !cf || !plain_segment(skb, &c->packet))
		return 0;
	struct packet *p = &c->packet;
	struct cookie *cookie = &c->cookie;
	struct scratch *scratch = &c->scratch;
	__u8 ip[40];
	struct bpf_sock *sk = listener(skb, p, scratch);

	if (!sk)
		return 0;
	bpf_sk_release(sk);
	if (load_header(skb, p, ip) < 0 ||
	    bpf_skb_load_bytes(skb, p->l3 + p->l4, scratch->buf, 20) < 0)
		return 0;
	if (p->version == 4 ? bpf_tcp_raw_check_syncookie_ipv4(ip, scratch->buf) < 0 :
			      bpf_tcp_raw_check_syncookie_ipv6(ip, scratch->buf) < 0)
		return 0;
	if (!read_tcp(skb, c)) // the state that the evaluation makes needs the options
		return 0;
	find_redeemed(c);
	cookie->offer = OFFER_REDEEMED;
	cookie->redeemed_flags = p->tcp_flags;
	p->tcp_flags = TH_SYN;
	p->seq--;
	return 1;
}

// open_connection has the stack open the connection of an acknowledgement that passes, unless it is
// open. It returns 0 if that failed.
static __always_inline int open_connection(struct __sk_buff *skb, struct cpu *c, struct config *cf,
					   struct gauge *g)
{
	const struct packet *p = &c->packet;
	const struct cookie *cookie = &c->cookie;
	struct bpf_tcp_req_attrs a = {};

	a.mss = cookie_segment(skb, c);
	if (cf->cookies & COOKIE_STAMPS && cookie->offered & SEEN_TS) {
		a.tstamp_ok = 1;
		a.rcv_tsval = cookie->ts_value;
		a.rcv_tsecr = cookie->ts_echo;
		a.sack_ok = (cookie->ts_echo & TS_SACK) != 0;
		a.wscale_ok = (cookie->ts_echo & 15) != TS_NO_SCALE;
		a.snd_wscale = a.wscale_ok ? cookie->ts_echo & 15 : 0;
		a.rcv_wscale = a.wscale_ok ? COOKIE_SCALE : 0;
	}
	struct bpf_sock *sk = listener(skb, p, &c->scratch);
	if (!sk) // another segment that carries the cookie may have opened it meanwhile
		return is_open(skb, p, &c->scratch);
	void *tcp = bpf_skc_to_tcp_sock(sk);
	int r = -1;
	if (tcp && bpf_sk_assign_tcp_reqsk)
		r = bpf_sk_assign_tcp_reqsk(skb, tcp, &a, sizeof(a));
	bpf_sk_release(sk);
	if (r < 0)
		return 0;
	// Copies do not show that the cookies of this second come back: they could end a flood's
	// mode.
	if (record_redeemed(c))
		__sync_fetch_and_add(&g->cookies_kept, 1);
	return 1;
}

// count_sent records in the state of a redeemed cookie what this segment sends. Another segment
// that carries the cookie may have made the state. It was evaluated as its SYN, which moves no
// numbers: without count_sent the acknowledgement of what this segment sends would be refused.
static __always_inline void count_sent(const struct packet *p, const struct lookup *look)
{
	__u32 place = look->first_place;
	struct set *s = set_at(place / WAYS);
	struct tag_line *t = tags_at(place / WAYS);

	if (!s || !t || !same_tag(READ_ONCE(t->tag[place % WAYS]), look->first_tag))
		return;
	struct side *d = look->from ? high_side(s, place) : low_side(s, place);
	raise(&d->end, p->seq + segment_length(p));
	if (p->tcp_flags & TH_FIN)
		set_flags(d, SIDE_FIN);
}

// finish_redeemed follows the evaluation of a redeemed cookie. The packet becomes an
// acknowledgement again, and if it passes, the stack opens the connection with it. Otherwise the
// state that it has made ends: it does not evict half-open ones, as that of a SYN does.
__noinline int finish_redeemed(struct __sk_buff *skb, struct cpu *c)
{
	struct config *cf = settings();
	struct gauge *g = gauges_now();
	if (!c || !cf || !g)
		return 0;
	struct packet *p = &c->packet;
	const struct lookup *look = &c->look;
	struct verdict *v = &c->verdict;
	p->tcp_flags = c->cookie.redeemed_flags;
	p->seq++;
	if (v->pass && open_connection(skb, c, cf, g)) {
		if (v->state != USE_NONE)
			count_sent(p, look);
		return 0;
	}
	if (v->pass) {
		v->pass = 0;
		v->reason = REASON_COOKIE_REFUSED;
	}
	if (v->state != USE_NEW)
		return 0;
	v->state = USE_NONE;
	return remove_state(c, look->first_place, look->first_tag, GONE_EXPIRED);
}

// before_evaluate handles incoming packets while cookies are in use: a SYN may get one, an
// acknowledgement may carry one.
static __always_inline void before_evaluate(struct __sk_buff *skb, struct cpu *c,
					    const struct packet *p)
{
	__u8 f = p->tcp_flags & (TH_SYN | TH_ACK | TH_RST);

	if (p->proto != PROTO_TCP || (f != TH_SYN && f != TH_ACK))
		return;
	struct gauge *g = gauges_now();
	if (!g || likely(!g->cookies))
		return;
	if (f == TH_ACK)
		redeem_cookie(skb, c);
	else if (g->cookies == COOKIES_ON)
		offer_cookie(skb, c);
}

// after_evaluate ends what before_evaluate began.
static __always_inline void after_evaluate(struct __sk_buff *skb, struct cpu *c,
					   const struct cookie *cookie)
{
	if (unlikely(cookie->offer == OFFER_REDEEMED))
		finish_redeemed(skb, c);
}
