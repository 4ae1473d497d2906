// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What lies in maps. The Go types are generated from these. A change of a pinned type raises
// LAYOUT.
#pragma once

#include "image.h"
#include "maybe.h"

// An interface of the host. Index n of name and globs is for the Program whose image has parity n.
struct iface {
	__u64 globs[2];
	__u32 name[2];
	__u32 dhcp; // enum dhcp_use
	__u32 pad;
};

struct address {
	__u64 hi, lo;
};

struct iface_address {
	__u32 ifindex;
	__u32 pad;
	struct address addr;
};

// How many interfaces of one network are listed.
enum { MAX_CONNECTED = 4 };

struct route {
	__u32 ifindex;
	__u32 flags;
};

struct connected {
	__u32 ifindex[MAX_CONNECTED]; // interfaces in this network; 0 ends the list
	__u32 more;		      // there are others
};

// The key of a prefix in a trie begins with the family, so ::/0 contains no IPv4 address. IPv4
// addresses have the form ::ffff:a.b.c.d.
struct table_key {
	__u32 bits;	// prefix length, with the 32 of family
	__u8 family[4]; // 4 or 6, three zeros
	__u8 addr[16];
};

struct counter {
	__u64 packets;
	__u64 bytes;
	__s64 last;
};

static __always_inline __u32 current_slot(__u32 current)
{
	return current & CURRENT_SLOT;
}

// current_flow returns the flow that the first rule looks up, struct header.fast_flow.
static __always_inline struct maybe current_flow(__u32 current)
{
	return maybe_from(current >> CURRENT_FAST_FLOW & 0xffff);
}

static __always_inline __u32 current_reads(__u32 current)
{
	return current >> CURRENT_READS;
}

// generation_of identifies the rules behind an answer: image slot and config.epoch. It is never 0.
static __always_inline __u64 generation_of(__u64 epoch, __u32 slot)
{
	return epoch << 8 | slot;
}

// The two parts of header.reads, each of enum read: what the vectors alone ask about, and what the
// vectors and all conditions ask about.
static __always_inline __u32 vectors_read(__u32 reads)
{
	return reads & READ_ALL;
}

static __always_inline __u32 rules_read(__u32 reads)
{
	return reads >> READ_BITS & READ_ALL;
}

// Where the keys of each hash lie in config.seed. A hash that other hosts can observe has keys of
// its own, so it reveals nothing about where states lie in the table.
enum { SEED_TABLE = 0, SEED_SOURCE = 10, SEED_NAT = 12, SEED_COOKIE = 22, NUM_SEEDS = 32 };

// The settings, written by the agent. Times are in ns.
struct config {
	__u32 layout;
	// slot of the image in force, and above it its header.fast_flow and header.reads: one word,
	// so that they change together
	__u32 current;
	__u32 sets; // of the state table
	__u32 track_sets;
	__u32 max_states;
	__u32 max_half_open;
	__u32 max_source; // half-open states of one source, 0 for any number
	__u32 cookies;	  // bits of enum cookie_use
	__u32 batch;	  // how many states a CPU may count before it adds them to the shared count
	__u32 liberal;
	__u32 no_essential;
	__u32 listen;	  // bit per enum event_kind that has a subscriber
	__u32 local_mark; // skb->mark of packets that Weir itself made
	__u32 random;	  // some rule has prob
	__u64 epoch;	  // raised after anything has changed that rules ask about: verdict_cache.h
	__u64 seed[NUM_SEEDS];
	__u64 own[4]; // a bit for each address of the host: cond.h
	__s64 life_syn, life_established, life_fin, life_rst, life_udp, life_udp_reply, life_short;
	__s64 life_frag;
	// what CLOCK_MONOTONIC_COARSE was when the count of jiffies was 0, and what one jiffy adds;
	// tick is 0 if that is not known
	__s64 clock, tick;
	// stores are seen by other CPUs in the order in which they are made: store_release
	__u32 in_order;
	// half_open_source.h: the numbers of cells and of slots of the ring, both powers of two,
	// less one. From source_from half-open states on a source's new ones are recorded, ~0 for
	// never; the last source_turns of them.
	__u32 source_mask, ring_mask, source_from, source_turns;
	__u32 max_nats;	    // translations
	__u32 max_pod_nats; // of one pod, 0 for any number
	__u32 no_dhcp;
	__u32 rate_sets;
	__u32 holding; // held_packets.h
	__u32 uppers;  // upper devices are known: upper_dev.h
	__u32 local;   // local routes lead to prefixes: is_mine
};

// A state's identity, flow.Key.
struct key {
	__u64 low_hi, low_lo, high_hi, high_lo;
	__u32 ports; // of the low end << 16 | of the high end
	__u8 proto;
	__u8 flow;
	__u16 pad;
};

// One end of a state, flow.Side, in a cache line of its own: packets from this end write it,
// packets from the other end read it. The side of the low end comes first.
struct side {
	__s64 last;
	__u64 packets;
	__u64 bytes;
	__u32 start, end, ack, edge, win;
	__u32 flags;   // enum side_flag | scale << 8 | enum meta
	__u32 rule;    // struct code.id of the rule that made the state, in both sides
	__u32 track;   // low side of a state: 1 + place in the table of tracks, or 0
	__s64 created; // low side of a state, both sides of a translation's entry
};

// The other meanings of these two words. They are not unions: clang takes a store to one for a
// store to anything, and fast_new had three more instructions.
#define side_partner(low) ((low)->track)       // translation: place of the other entry
#define side_nat_word(high) ((high)->track)    // inner entry of a translation: see NAT_PHASE
#define side_track_era(high) ((high)->created) // state: era of its track

#define META_PORT_CLIENT (META_PUBLISHED | META_MADE) // this end is the client of the port

// The rule of translations, beside NAT_FLOW.
#define NAT_RULE 0xffffffffU

static __always_inline __u32 nat_word(struct maybe pod, __u32 phase)
{
	return pod.plus1 << NAT_POD_SHIFT | phase;
}

static __always_inline __u32 phase_in(const struct side *high)
{
	return READ_ONCE(side_nat_word(high)) & NAT_PHASE;
}

static __always_inline struct maybe pod_in(const struct side *high)
{
	return maybe_from(side_nat_word(high) >> NAT_POD_SHIFT & NAT_POD);
}

static __always_inline struct maybe backend_in(const struct side *high)
{
	return maybe_from(side_nat_word(high) >> NAT_BACKEND_SHIFT & NAT_BACKEND);
}

// with_phase is the nat_word of a translation that has reached another phase.
static __always_inline __u32 with_phase(__u32 word, __u32 phase)
{
	return (word & ~(__u32)NAT_PHASE) | phase;
}

static __always_inline __u32 partner_of(const struct side *low)
{
	return side_partner(low);
}

// One set of the state table: a line of tags, and in another map the addresses and the sides. The
// lines of tags lie together, so they stay in the cache when the entries do not. An entry is found
// by its tag: a look-up reads two lines of tags, and one cold entry unless it finds nothing. A tag
// holds the ports, the protocol, the flow name and twelve bits of the hash. Its two low bits say
// what the entry is, the third that it is half-open. The fourth says of a half-open entry that it
// was answered, of another one that its connection ends (sweep_hint.h).
struct tag_line {
	__u64 tag[WAYS];
};

// The bits of a tag that are the same while the entry is claimed and when it is live.
#define TAG_IDENTITY (~(__u64)(TAG_HALF_OPEN | TAG_ANSWERED | (TAG_LIVE ^ TAG_CLAIMED)))

struct set {
	struct {
		__u64 low_hi, low_lo, high_hi, high_lo;
	} addr[WAYS];
	struct side side[2 * WAYS];
};

// A track counts the states that one rule made for one masked tuple: all of them, and those that
// have proved themselves. A track that counts only half-open states may be given to another tuple:
// then its era changes, and these states no longer count.
enum { TRACK_DEAD = 1 << 27, TRACK_COUNT = 0x7ffffff };
#define TRACK_ONE_PROVED (1ULL << 28)
#define TRACK_PROVED ((1ULL << 56) - TRACK_ONE_PROVED)
#define TRACK_ERA 56

struct masked {
	__u64 src_hi, src_lo, dst_hi, dst_lo;
	__u32 ports;
	__u32 rule; // struct code.id
	__u32 proto;
	__u32 pad;
};

struct track {
	struct masked by;
	// number of states | TRACK_DEAD | number of proved ones << 28 | the lowest byte of the era
	// << TRACK_ERA
	__u64 held;
	__u32 era;
	__u32 last; // bits of the hash of the flow whose state has entered last
};

struct track_set {
	__u64 tag[WAYS];
	struct track track[WAYS];
};

// Counts of states and translations. Counts that every CPU writes have cache lines of their own.
struct gauge {
	__s64 states;
	__u64 pad1[7];
	__s64 half_open;
	__s64 answered; // of these
	__u64 pad2[6];
	// SYN cookies, cookie.h: what packets read, and what they count.
	__u32 cookies;	     // enum cookies_mode
	__u32 cookie_turns;  // how often they were switched on
	__s64 cookies_until; // while they are going: when the last may still be redeemed
	__u64 pad3[6];
	__u64 cookies_sent;
	__u64 cookies_kept;		// redeemed, without copies: connections
	__u64 sent_before, kept_before; // when the tick looked last
	__s64 looked;
	__u64 pad4[3];
	// Translations.
	__s64 nats;
	__u64 nats_made;
	__u64 nats_evicted;   // evicted for another
	__u32 nat_clock_hand; // set where the search for the next eviction begins
	__u32 pad5[9];
};

enum { COOKIES_FROM = 4, COOKIES_TO = 8 }; // see enum cookies_mode
// What cookie->offer says about a packet: a SYN that may be answered by a cookie, one that was
// answered just now, an acknowledgement that is evaluated as its SYN.
enum offer { OFFER_NONE, OFFER_COOKIE, OFFER_REPEATED, OFFER_REDEEMED };

// The clock hand over the state table, as in the CLOCK page replacement algorithm.
struct clock_hand {
	struct bpf_timer timer;
	__u32 next;	  // set to look at
	__u32 ticks;	  // since the start
	__s64 pass_began; // times of the coarse clock
	__s64 pass_took;  // the last whole pass, 0 before the first has ended
	__u64 longest;	  // of all ticks, ns of work
	__u64 worked;	  // in all ticks, ns
	__u64 gone;	  // states removed
};

struct frag_key {
	struct address src, dst;
	__u32 id;
	__u32 serial;
	__u32 recv, xmit; // of the hook: later fragments come where the first came
	__u8 proto;
	__u8 dir;
	__u8 pad[6];
};

struct frag {
	__s64 until;
	__u32 end;
	__u32 rule; // struct code.id, 0 if decided before the rules
	__u8 pass;
	__u8 poisoned;
	__u8 pad[2];
	__u32 next_hop; // as in struct walk
};

// firewall.Event
struct event {
	__s64 time;
	__u64 src_hi, src_lo, dst_hi, dst_lo;
	__u64 packets[2];
	__u64 bytes[2];
	__s64 duration;
	__u32 ports; // source << 16 | destination
	__u32 length;
	__u32 recv, xmit;
	__u32 rule; // struct code.id
	__u16 number;
	__u16 slot;
	__u8 kind, dir, proto, tcp_flags;
	__u8 pass, reason, answer, code;
	__u8 state;
	__u8 version;
	__u8 pad[6];
};

// The first bytes of a captured frame with its verdict.
enum { SNAP = 256 };

struct captured {
	struct event event; // without addresses: they are in data
	__u32 size;	    // of data
	__u32 l2;	    // bytes in front of the IP header, as for read_frame
	__u8 data[SNAP];
};

// A frame that is held (held_packets.h), and the hook that it came to.
struct held_frame {
	__u32 ifindex, ingress_ifindex;
	__u32 mark, priority, pkt_type;
	__u32 dir;
	__u32 size; // of data
	__u8 data[SNAP];
};

// The verdict, firewall.Verdict.
struct verdict {
	__u8 pass;
	__u8 reason;
	__u8 answer;
	__u8 code;
	__u8 state;
	__u8 pad;
	__u16 number;
	__u32 slot;
	__u32 id;
};

// The same as two words on a little-endian machine.
struct verdict_words {
	__u64 first, second;
};

// Input and output of a program that a test or the agent runs by BPF_PROG_TEST_RUN.
struct call {
	__s64 now;
	__u32 random;
	__u32 recv, xmit;
	__u8 dir;
	__u8 tags;
	__u8 op;
	__u8 pad;
	__u16 tag[MAX_TAGS];
	__u32 place; // the state to remove, or the set with which a sweep begins
	__u32 count;
	__u64 tag_word;
	__s64 clock; // of OP_CLOCK: config.tick, and as an output config.clock
	// The state to adopt.
	struct key key;
	struct side side[2];
	// Output.
	struct verdict out;
	__s64 result;
};

// A name that an id stands for, kept for the agent: kinds are those of firewall/kernel.
struct name_id_key {
	__u32 kind;
	__u32 id;
};

struct name_id {
	__u8 name[64];
};

// Types that the generator finds only here: no map has them as the type of its values.
struct shapes {
	struct header header;
	struct code code;
	struct cond cond;
	struct range range;
	struct pipe pipe;
	struct span span;
	struct table_key table_key;
	struct event event;
	struct captured captured;
	struct held_frame held_frame;
};
