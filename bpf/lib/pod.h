// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What is known of pods, of NICs, and of translation, docs/design/0004-containers.md: written by
// the agent, read by the programs.
#pragma once

#include "maps.h"

// Bits of endpoint.limited, besides 1 << DIR_IN and 1 << DIR_OUT. ENDPOINT_QUEUED: what the pod
// sends and gets goes through queueing disciplines of its host end. ENDPOINT_NETKIT: the pair is a
// netkit, see weir_in_netkit.
enum { ENDPOINT_QUEUED = 4, ENDPOINT_NETKIT = 8 };

// The pod behind the host end of a veth or netkit pair.
struct endpoint {
	struct address addr[MAX_POD_ADDRESSES]; // what it may send from; the first `count`
	__u32 count;
	__u32 ifindex; // of the host end
	__u32 mtu;
	__u32 place; // in the maps of counters and buckets
	__u8 mac[6], host_mac[6];
	__u32 limited; // 1 << DIR_IN, 1 << DIR_OUT, as the pod sees it; ENDPOINT_QUEUED,
		       // ENDPOINT_NETKIT
};

// An interface that is not a pod's and whose egress hook is ours.
struct nic {
	struct address four, six; // that pods are masqueraded with there, 0 if it has none
	__u32 redirect;		  // it has Ethernet headers: packets may be redirected to it
	__u32 pad;
};

// Ports to choose from: the first, and how many.
struct port_span {
	__u32 first, count;
};

// What forwarding depends on. Parts that are not in use cost a packet one test.
struct forwarding {
	__u32 pods;		// how many there are
	__u32 published;	// how many ports
	__u32 masquerade;	// sources are translated
	__u32 no_redirect_peer; // bpf_redirect in place of bpf_redirect_peer
	__u32 serial;		// raised whenever pods or NICs have changed
	__u32 ports;		// how many there are to choose from, in all spans
	__u32 route_mtus;	// how many routes have an MTU of their own
	__u32 netfilter;	// it may translate what goes from or to pods
	__u32 forwards;		// how many of the published ports lead to no pod
	__u32 sources;		// how many ranges of others than pods are translated
	__u32 stack;		// enum stack_use
	__u32 policies;		// how many IPsec policies the programs ask, and where: ipsec.h
	struct port_span span[MAX_PORT_SPANS];
	// the host's source addresses as a client of a pod's port at a loopback address
	struct address four, six;
};

struct pod_counter {
	__u64 packets[2]; // by enum direction, as the pod sees it
	__u64 bytes[2];
	__u64 drops[2];
};

// A rate limit: `time` is when the rate allows all that was sent so far. A bucket whose time is
// `burst` or more in the past is full.
struct bucket {
	__s64 time;
	__u64 per_byte; // ns << 16
	__u64 burst;	// ns
	__u64 pad;
};

// Where in nat_counts translations of no pod are counted, and what is known of all of them.
enum { NAT_NO_POD = MAX_PODS, NAT_ALL };

// The translations of the pod at a place.
struct nat_count {
	__u32 nats; // how many there are, but for NAT_ALL
	__u32 pad;
	// none of them could be evicted: until then no packet searches for one that can
	__s64 no_evict_until;
};

struct published_key {
	struct address addr; // all zeros (of the family) for any address of the host
	__u16 port;
	__u8 proto;
	__u8 pad[5];
};

// A forwarded port is a published port whose target is not a pod, but any address that the stack
// routes to. The target of a service lies in the map services, under the same key.
struct published {
	struct address addr;
	__u32 port; // of TO_NAT_RULE also the number of the instance, << 16
	__u32 kind; // enum leads
};

// How a source is translated, in the trie of translated sources. The key of those of rules with nat
// has the number of the instance in its family, see nat_rule_key.
struct masked_source {
	struct address to; // 0 for that of the NIC
	__u32 flags;
	__u32 pad;
};

// Which translation the later fragments of a datagram follow.
struct nat_frag_key {
	struct address src, dst;
	__u32 id;
	__u32 recv; // the interface that the first came in by
	__u8 proto;
	__u8 dir;
	__u8 pad[6];
};

struct nat_frag {
	struct address src, dst;
	__s64 until;
	__u64 nat_rule; // as in struct nat
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct forwarding);
} forwarding SEC(".maps");

VALUE_OF(forwarding, forwarding);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PODS *MAX_POD_ADDRESSES);
	__type(key, struct address);
	__type(value, struct endpoint);
} pods SEC(".maps"); // by address

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PODS);
	__type(key, __u32);
	__type(value, struct endpoint);
} endpoints SEC(".maps"); // by the index of the host end

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct nic);
} nics SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_PODS);
	__type(key, __u32);
	__type(value, struct pod_counter);
} pod_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAT_ALL + 1);
	__type(key, __u32);
	__type(value, struct nat_count);
} nat_counts SEC(".maps"); // by struct endpoint.place

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_PODS);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps"); // place * 2 + direction

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct published_key);
	__type(value, struct published);
} published SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, struct table_key);
	__type(value, struct masked_source);
} masked_sources SEC(".maps");

// The MTU of routes that have one of their own, bytes, by prefix: the least of all routes that
// cover it.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct table_key);
	__type(value, __u32);
} route_mtus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct nat_frag_key);
	__type(value, struct nat_frag);
} nat_frags SEC(".maps");

static __always_inline struct forwarding *forwarding_settings(void)
{
	return &forwarding_value;
}

// nat_for_others: the host translates for others than pods, whose packets go through the stack.
static __always_inline __u32 nat_for_others(const struct forwarding *f)
{
	return f->forwards | f->sources;
}

static __always_inline struct endpoint *pod_at(__u64 hi, __u64 lo)
{
	struct address a = {.hi = hi, .lo = lo};
	return bpf_map_lookup_elem(&pods, &a);
}

static __always_inline struct endpoint *endpoint_at(__u32 ifindex)
{
	return bpf_map_lookup_elem(&endpoints, &ifindex);
}

// may_redirect_to: packets may leave by an interface without the stack.
static __always_inline int may_redirect_to(__u32 ifindex)
{
	struct nic *nic = bpf_map_lookup_elem(&nics, &ifindex);

	return nic && nic->redirect;
}

// limits_of returns the bits of endpoint.limited that keep a packet from the fast path.
static __always_inline __u32 limits_of(const struct endpoint *e)
{
	return e->limited & ~ENDPOINT_NETKIT;
}

static __always_inline void count_pod(__u32 place, __u32 dir, __u32 len)
{
	struct pod_counter *n = bpf_map_lookup_elem(&pod_counters, &place);

	if (n) {
		n->packets[dir & 1]++;
		n->bytes[dir & 1] += len;
	}
}

static __always_inline void count_pod_drop(__u32 place, __u32 dir)
{
	struct pod_counter *n = bpf_map_lookup_elem(&pod_counters, &place);

	if (n)
		n->drops[dir & 1]++;
}

// over_rate takes a packet from a bucket, and reports whether the bucket was empty.
static __always_inline int over_rate(__u32 place, __u32 limited, __u32 dir, __u64 len)
{
	if (likely(!(limited >> dir & 1)))
		return 0;
	__u32 n = place * 2 + dir;
	struct bucket *b = bpf_map_lookup_elem(&buckets, &n);
	if (!b)
		return 0;
	__s64 now = bpf_ktime_get_ns(), cost = (len * b->per_byte) >> 16, old = READ_ONCE(b->time);
	if (old > now)
		return 1;
	// another CPU that does the same has already granted the burst
	if (old < now - (__s64)b->burst) {
		if (__sync_val_compare_and_swap(&b->time, old, now - (__s64)b->burst + cost) == old)
			return 0;
	}
	__sync_fetch_and_add(&b->time, cost);
	return 0;
}
