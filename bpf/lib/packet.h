// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The data of the current packet on a CPU, in parts by purpose, and the CPU's own counters. It is
// in a map, not on the stack: the verifier does not track values in a map, so it processes less.
//
// A function takes the parts that it uses, as const if it only reads them. One that uses most of
// them takes struct cpu. So does a global function, and tests the pointer: the verifier checks it
// for any argument. A few look it up themselves (this_cpu): README.md says why.
#pragma once

#include "types.h"

// A packet, and where and when it is evaluated. The decoder or the fast path fills it in. After
// that it changes only when the packet is forwarded (dir, recv, xmit, second_evaluation),
// translated (apply_tuple), or carries a SYN cookie (redeem_cookie). own_arp and resolve_translated
// put other addresses here to ask about them. Fields down to "reason" are those of packet.Packet.
struct packet {
	__u64 src_hi, src_lo, dst_hi, dst_lo;
	__u32 ports, seq, ack;
	__u32 ip_id, len;
	__u16 window;
	__u16 frag_off, l4, payload;
	__u8 tcp_flags, icmp_type, icmp_code, frag;
	__u8 version, proto, ttl, tos;
	__u8 ip_options, ext_hdrs, reason;
	__u8 jumbo; // bytes of the jumbo header of a GSO packet, which its segments do not have

	__u8 kind;		// enum parsed
	__u8 scale;		// of a SYN, NO_SCALE if there is none
	__u8 chunk, chunk_bits; // SCTP
	__u32 init_tag; // SCTP: what an INIT or INIT ACK asks the other end to use, 0 for none
	__u32 l3;	// offset of the IP header in the frame
	__u32 buffer;	// bytes from there on
	__u32 frag_end; // where the fragment's data ends in the datagram

	__u8 dir;
	__u8 second_evaluation; // at egress
	__u16 segment;		// of a GSO packet: bytes behind the headers in each segment, else 0
	__u32 recv, xmit;
	__s64 now;
};

// The flow of the packet, and the state found for it.
struct lookup {
	struct key key;
	__u32 from;    // 0: the low end sent the packet
	__u8 keyed;    // enum keyed
	__u8 is_error; // the key is that of the packet that an ICMP error quotes
	__u8 quote_proto;
	__u8 hashed; // hash and tag are those of key
	__u32 quote_seq;
	__u32 quote_type; // of a quoted ICMP message
	__u32 quote_at;	  // where the quoted transport header lies in the IP packet
	__u32 place;	  // of the state found, set * WAYS + way
	__u64 tag;
	__u64 hash;
	__u32 unknown;	     // the last packet of the fast path shows that a prefetch is useless
	struct maybe missed; // flow id of which the fast path found no state
	struct maybe spare;  // place that a look-up without success found for the key
	struct maybe proved; // place of the state that count_proved_in_track has to count as proved

	// What the first evaluation found or made.
	struct maybe first_flow; // id of its flow name
	__u32 first_rule;
	__u32 first_place;
	__u64 first_tag;
	__u8 first_look; // result of the look-up
	__u8 first_new;	 // this packet made the state
	// a state alone decided that the packet passes, and will decide the same at egress
	__u8 decided_by_state;
};

// Where the state to be made counts: in the track of a rule with limit, and for its source.
struct limit {
	struct masked masked; // what the track counts by
	__u64 tag;	      // of the track of this tuple
	__u32 era;	      // of the track that was entered
	struct maybe track;   // its place
	__u32 none;	      // there was no free track
	__u32 flow;	      // bits of the hash of the state's flow, never 0; 0 for an old state
	__u32 own_flow;	      // the track is full, and a state of this flow has entered it last
	__u32 lost;	      // another CPU was making or entering the same track
	__u32 most, refusals; // of enter_limit
	__u32 turn;	      // of the source
	__u64 source;	      // its hash
};

// The walk through the rules of an image.
struct walk {
	__u32 current; // slot of the image
	__u32 slot;    // of the current rule
	__u32 random;
	__u32 pc;
	__u32 word; // of the candidates below, ~0 if none
	__u64 all, match;
	__u32 matched; // its vectors all match
	__u32 cond, cond_end;
	__u32 entry; // of the condition's pool
	__u8 clause;
	__u8 mode;
	__u8 later_fragment; // a later fragment without a first
	__u8 depth;
	__u32 jumps;
	__u32 class_of[NUM_DIMS];
	__u32 vector_row[NUM_DIMS]; // of the vectors, in header.order
	__u32 vector_at[NUM_DIMS];
	__u32 look_row, words;
	__u32 blocks, look_blocks; // where a rule may match, where one looks states up: header.sums
	__u32 classified;
	__u32 reads; // enum read: what was asked about so far
	__u64 epoch; // config.epoch before the evaluation
	// so far only what lies in struct traits was asked about, and no rule has matched
	__u8 cacheable;
	__u8 any_looked_up;
	__u64 looked[4]; // flow ids that were looked up
	__u64 have[4];	 // flow ids of which there is a state
	__u32 lookups;
	__u32 call[MAX_CALLS];
	__u16 tag_list[MAX_TAGS];
	__u32 tags;
	__u32 awaits_nat; // the translation that waits for a rule with nat, see AWAIT_PACKET
	__u32 nat;	// number of the instance that the last rule with nat has named, 0 for none
	__u32 next_hop; // 1 + place of the one to which a rule with fwd has sent the packet, or 0
	__u32 resume;	// where the walk continues with the packet translated, 0 for nowhere
	struct iface recv_if, xmit_if;
};

// SYN cookies, cookie.h.
struct cookie {
	__u8 offer;   // enum offer
	__u8 offered; // enum seen_option
	__u8 redeemed_flags;
	__u8 redeemed_before; // enum redeemed_before
	__u32 ts_value, ts_echo;
	// cookie_repeat.h
	__u64 syn;
	__u64 redeemed_hash; // of the flow of a redeemed cookie
};

// The part of a packet that translation changes. ports are those of struct packet, for ICMP queries
// those of icmp_ports.
struct tuple {
	__u64 src_hi, src_lo, dst_hi, dst_lo;
	__u32 ports;
	__u32 pad;
};

// The translation to evict: how many of those weighed could be evicted, and the best of them.
struct nat_victim {
	__u32 found;
	__u32 place;
	__u64 rank, tag;
	__u32 port; // that its eviction frees
};

// Values of nat->nat_rule: any instance; and a bit that says that the rules have seen the packet
// translated.
enum { ANY_INSTANCE = 1 << 16, SEEN_TRANSLATED = 1 << 17 };

// What is left to do for a packet to a published port: nothing, make its translation once it has
// passed, or refuse it, since the service has no backend.
enum make { MAKE_NONE, MAKE_TRANSLATION, MAKE_REFUSAL };
// Values of walk.awaits_nat: no translation waits; that of the packet does, AWAIT_PACKET + its enum
// make; that of an ICMP error does.
enum { AWAIT_NOTHING, AWAIT_PACKET, AWAIT_ERROR = AWAIT_PACKET + MAKE_REFUSAL + 1 };

// Translation, nat.h.
struct nat {
	__u8 translated; // orig has the fields of the frame, struct packet other ones
	__u8 make;	 // enum make
	__u8 keep_port;	 // the source keeps its port or id: it alone has the address
	// the translation is that of a rule with nat: the number of the instance, or ANY_INSTANCE,
	// 0 for another translation
	__u32 nat_rule;
	__u32 instance; // of the rule with nat that has let the leaving packet pass; 0 for none
	__u32 part;	// of a service's flows to which the packet's flow belongs
	struct maybe backend; // place of the one that find_published has chosen
	__u32 partner;	      // the other entry of a translation
	struct maybe inner;   // place of the inner entry of the translation that the packet follows
	__u32 from;	      // 0: the low end of that entry sent the packet
	struct nat_victim victim;
	struct tuple orig, new;
	// the tuple before the translation that fragments follow: a packet between a pod and a
	// published port may have two translations
	struct tuple before;
};

// The pod, if any, that a packet goes to or comes from.
struct pkt_endpoint {
	__u32 is_pod;	      // of the sender, fwd_entry.from_pod
	__u32 place, limited; // as in struct endpoint
	__u32 mtu, ifindex;
};

// Why the next hop of a rule with fwd cannot get a packet, as reported in an ICMP error.
enum hop_error { HOP_FINE, HOP_TOO_BIG, HOP_EXPIRED };

// Forwarding, forward.h and next_hop.h.
struct forward {
	// by direction as a pod sees it: the receiver, the sender
	struct pkt_endpoint endpoint[2];
	__u32 index;	 // of the packet's addresses in the forwarding cache, fwd_cache.h
	__u8 macs_known; // macs are those of the route to a NIC
	__u8 macs[12];	 // destination, source
	struct bpf_fib_lookup route;
	struct bpf_redir_neigh next;
	struct address hop; // that of a rule with fwd, or the gateway to it
	__u32 hop_port, hop_ifindex, hop_mtu;
	__u32 hop_error; // enum hop_error; of the answer being made
};

enum { HOP_OPTIONS_SIZE = 2048 }; // a hop-by-hop header has at most 2,046 bytes of options

// Scratch: no function leaves anything in it for another one, except to its callee.
struct scratch {
	__u8 buf[64];
	__u32 at, end, left;
	__u32 vacant, vacant_b, way;
	struct maybe spare_way;
	__u32 span; // of a search
	__u64 checksum;
	__be32 old_words[8], new_words[8];
	__u8 hop_options[HOP_OPTIONS_SIZE];
};

struct count {
	__u64 packets, bytes;
};

// What IPsec policies are asked about, and how far the search is: ipsec.h.
struct policy_query {
	struct address src, dst;
	__u32 ports, mark;
	__u8 version, proto;
	__u8 ways;  // enum policy_flag: those of a direction
	__u8 whole; // any protocol, ports and mark
	__u32 half; // where the policies lie
	// places: the group to search next, the policy to ask next, the first that matches so far
	__u32 group, at, found;
	__u32 protects; // the policy that was found does
	__u32 pad;
};

// One per CPU.
struct cpu {
	struct packet packet;
	struct lookup look;
	struct limit limit;
	struct walk walk;
	struct verdict verdict;
	struct cookie cookie;
	struct nat nat;
	struct forward fwd;
	struct scratch scratch;

	struct maybe moved; // place to which begin_move has begun to move an entry
	// rule that the sweep has found to be in force since it began, 0 if there is none
	__u32 rule_in_force;
	// packets by direction, whether they passed, and enum reason, in this order
	struct count decided[4 * NUM_REASONS];
	__u64 removed[8]; // states by why they went, enum removal
	__u64 created;
	__u64 lost; // events that found the ring full
	// answers that could not be made, were too many, or may have to be encrypted
	__u64 unanswered;
	__s64 answer_time, reset_time; // reply.h
	__s64 pending;		       // states counted here and not yet in the gauge
	// hash of an end towards which no port was free and none could be freed: until when no
	// packet searches again
	__u64 no_port_end;
	__s64 no_port_until;
	__u64 rates_full;    // packets without a place for a bucket of their own, rate.h
	__u32 passed_before; // at a lower or an upper device: upper_dev.h
	// What the first program of a hook hands to the second: see fast_describe.h; and that the
	// forwarding entry fwd.index holds for the packet.
	__u32 known, forwards;
	__u32 pad;
	struct policy_query policy;
};
