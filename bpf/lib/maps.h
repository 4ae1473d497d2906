// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The maps. Sizes given as 1 are set by the loader.
#pragma once

#include "packet.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

// VALUE_OF declares MAP_value, the only value of a map. The loader replaces it by the address of
// that value, so the programs need no look-up. Fewer look-ups also make the load faster: the kernel
// moves the rest of a program each time it replaces a look-up by its instructions.
#define VALUE_OF(map, type) \
	__attribute__((visibility("hidden"))) struct type map##_value SEC(".data." #map)

VALUE_OF(config, config);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

// In weir_call and weir_evaluate the loader replaces cpus by this map: before Linux 6.3 a packet
// may interrupt BPF_PROG_TEST_RUN, and would overwrite what an adoption is about to use.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} call_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct table_key);
	__type(value, struct route);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, struct table_key);
	__type(value, struct connected);
} networks SEC(".maps");

struct image {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	// not types: clang 14 leaves them out of the BTF of inner maps
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct row));
};

// Two images, of which config.current names the one in force. The third slot only serves to wait
// for packets that are being processed: the kernel waits for them whenever a slot is set.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 3);
	__type(key, __u32);
	__array(values, struct image);
} images SEC(".maps");

struct table {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 21);
	__uint(key_size, sizeof(struct table_key));
	__uint(value_size, sizeof(__u32));
};

// Tables by id. The map can hold those of two rule sets: one in force, and one that replaces it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__array(values, struct table);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct iface);
} ifaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct iface_address);
	__type(value, __u32);
} addresses SEC(".maps"); // with ifindex 0: addresses of the host

// Counters by rule index.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

// How many events each rule has logged, by rule index.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, __u32);
} logged SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tag_line);
} tags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct set);
} states SEC(".maps");

// By set of the state table: sweep_hint.h.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sweep_hints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct track_set);
} tracks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gauge);
} gauges SEC(".maps");

VALUE_OF(gauges, gauge);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock_hand);
} clock_hands SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct frag_key);
	__type(value, struct frag);
} frags SEC(".maps");

// Refusals have a map of their own: refused packets evict no record of a datagram that passes.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct frag_key);
	__type(value, struct frag);
} refused_frags SEC(".maps");

enum { EVENT_RING = 1 << 20 }; // bytes

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENT_RING);
} events SEC(".maps");

enum { HELD_RING = 1 << 18 }; // bytes

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, HELD_RING);
} held_packets SEC(".maps");

// The first is the call, the others are what OP_ADOPT_MANY adopts.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 + ADOPT_BATCH);
	__type(key, __u32);
	__type(value, struct call);
} calls SEC(".maps");

// What the agent subtracts from the counters when it shows them: it never writes where packets are
// counted.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct counter);
} bases SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct name_id_key);
	__type(value, struct name_id);
} name_ids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shapes);
} shapes SEC(".maps");

static __always_inline struct cpu *this_cpu(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&cpus, &zero);
}

static __always_inline struct config *settings(void)
{
	return &config_value;
}

static __always_inline struct gauge *gauges_now(void)
{
	return &gauges_value;
}

// coarse_now is CLOCK_MONOTONIC_COARSE, computed from the count of ticks that advances it. The
// verifier turns the read of that count into a load. A read of the clock is two calls.
static __always_inline __s64 coarse_now(struct config *cf)
{
	__s64 tick = cf->tick;

	return likely(tick) ? (__s64)bpf_jiffies64() * tick + cf->clock :
			      (__s64)bpf_ktime_get_coarse_ns();
}

// image_of returns the image that evaluates the packet.
static __always_inline void *image_of(const struct walk *walk)
{
	__u32 current = walk->current;
	return bpf_map_lookup_elem(&images, &current);
}

// row_in returns row n of an image, row_of that of the image that evaluates the packet.
static __always_inline struct row *row_in(void *image, __u32 n)
{
	return bpf_map_lookup_elem(image, &n);
}

static __always_inline struct row *row_of(const struct walk *walk, __u32 n)
{
	void *image = image_of(walk);
	return image ? row_in(image, n) : NULL;
}

static __always_inline struct header *header_of(const struct walk *walk)
{
	return (struct header *)row_of(walk, 0);
}

static __always_inline struct maybe fast_flow(const struct header *h)
{
	return maybe_from(h->fast_flow);
}

static __always_inline struct code *code_in(void *image, __u32 slot)
{
	struct row *r = row_in(image, FIRST_CODES + slot / ROW_CODES);
	return r ? &((struct code *)tested(r))[slot % ROW_CODES] : NULL;
}

static __always_inline struct code *code_of(const struct walk *walk, __u32 slot)
{
	void *image = image_of(walk);
	return image ? code_in(image, slot) : NULL;
}
