// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The layout of a Program in memory.
#pragma once

#include "consts.h"
#include "kernel.h"

// A Program lives in one map, its image: rows of 2048 bytes. Each section begins at a row of its
// own. The first row is the header. An image is never changed once it is published.
enum {
	ROW_CODES = ROW / 64,
	ROW_PIPES = ROW / 128,
	ROW_CONDS = ROW / 16,
	ROW_RANGES = ROW / 8,
	ROW_SPANS = ROW / 32,
	ROW_U64 = ROW / 8,
	ROW_U32 = ROW / 4,
	ROW_U16 = ROW / 2,
};

enum { MAX_TAGS = 8 }; // of a packet

struct row {
	__u8 b[ROW];
};

struct header {
	__u32 rules;  // slots; the last one is the default rule
	__u32 words;  // of a vector
	__u32 first;  // first slot that looks up states; rules if none does
	__u32 need;   // enum need
	__u32 parity; // which half of struct iface belongs to this image
	__u32 serial; // of the load; part of a fragment's key
	// number of different flow names that rules look up, 256 if :any is among them
	__u32 lookups;
	__u32 flows; // number of flow ids in flow[]
	__u32 dims;  // bit d: dimension d has more than one class
	__u32 ones;  // a row of set bits, the vector of dimensions with one class
	__u32 look;  // row: bits of the slots that look up states
	// the flow that the first rule looks up, a struct maybe: none if it does not, or not always
	__u32 fast_flow;
	__u32 conds; // first rows
	__u32 ranges;
	__u32 prefixes;	 // spans of the prefixes that conditions name
	__u32 slots;	 // rule index -> incarnation << 16 | slot
	__u32 small;	 // 2 rows of class numbers: proto, flags, hook; icmp
	__u32 root[2];	 // source, destination: classes of IPv4 by the first 16 bits
	__u32 blocks[2]; // blocks of 256 entries
	__u32 spans[2];	 // classes of IPv6: sorted spans that cover everything
	__u32 nspans[2];
	__u32 ports[2];
	__u32 vectors[NUM_DIMS]; // first rows of the dimensions' vectors
	__u32 shift;		 // log2 of the vectors in one row
	__u32 active;		 // number of dimensions in order[] with more than one class
	__u8 order[NUM_DIMS];	 // dimensions, those with most classes first
	__u8 flow[256];		 // the Program's flow ids in order -> stable flow ids
	// per class a bit for each block of BLOCK words in which its vector has a bit set; 0 where
	// the vectors have only one block
	__u32 sums[NUM_DIMS];
	__u32 look_blocks; // such bits of the slots that look up states
	// enum read: what the vectors ask about, and << READ_BITS what the vectors and all
	// conditions ask about
	__u32 reads;
	// first slot to visit when the look-up of fast_flow has found nothing: 1 if the first rule
	// does nothing else
	__u32 after;
	__u32 pipes; // first row of the pipes, and how many there are
	__u32 npipes;
};

// Places in the first row of header.small, as __u16 indexes.
enum { SMALL_PROTO = 0, SMALL_FLAGS = 512, SMALL_HOOK = 776 };

// program.Rule
struct code {
	__u64 key;
	__u32 id; // incarnation << 16 | index: stable name of the rule, for counters and states
	__u32 arg;
	__u32 prob;
	__u32 limit;
	__u32 log_max;
	__u32 cond;
	__u32 cond_end;
	__u16 number;
	__u16 tag;
	__u8 action;
	__u8 state;
	__u8 flow; // stable flow id, or ANY_FLOW
	__u8 mask;
	__u8 flags;
	__u8 rate_mask;
	__u8 pad[2];
	// limit-rate: ns between two packets, and the longest time until a bucket that still has a
	// token is full again
	__s64 every, slack;
};

// program.Pipe
struct pipe {
	__u64 key;
	__u64 per_byte; // 2^-PIPE_SHIFT ns
	__s64 depth;
	__u64 src6_hi, dst6_hi, dst6_lo; // masks of IPv6 addresses
	__u32 src, dst;			 // of IPv4 addresses
	__u32 ports;			 // source << 16 | destination
	__u32 id;			 // as that of a rule
	__u8 proto;
	__u8 masked; // there are several buckets
	__u8 pad[54];
};

// program.Cond
struct cond {
	__u8 op;
	__u8 flags;
	__u16 n;
	__u32 a;
	__u32 b;
	__u32 pad;
};

struct range {
	__u32 lo, hi;
};

// A span of addresses, inclusive, IPv4 as ::ffff:a.b.c.d. For classes only lo counts: the span ends
// where the next begins.
struct span {
	__u64 lo_hi, lo_lo;
	__u64 hi_hi; // the class, in a table of classes
	__u64 hi_lo;
};
