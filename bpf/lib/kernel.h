// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The part of the kernel's interface that Weir uses: UAPI types, numbers and helpers. The build
// needs nothing but clang. Source: include/uapi/linux/bpf.h of Linux 6.1, where all of it is
// stable.
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;

#define NULL ((void *)0)
#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
// A global function: the verifier checks it once, on its own, for any argument.
#define __noinline __attribute__((noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() asm volatile("" ::: "memory")
// clang-format off
// Hides from the compiler what it knows of a variable, so that a test stays where it is written.
#define opaque(v) asm volatile("" : "+r"(v))
// A pointer that has just been tested. The verifier demands the test before any arithmetic; clang
// 19 would move arithmetic before it.
#define tested(p) ({ opaque(p); p; })
// A number below `most`, a power of two, in a form that the verifier follows. clang would omit the
// mask of a number that it knows to be small. Without the mask a verifier before Linux 6.8 loses
// the bounds at an `or` of two unknown numbers.
#define below(n, most) ({ __u32 less = (n); opaque(less); less & ((most) - 1); })
// A size from 1 to `most`, a power of two, in a form that the verifier follows. Helpers demand at
// least 1, and before Linux 6.8 the verifier learns nothing from a test for 0.
#define sized(n, most) (below((n) - 1, most) + 1)
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

// Memory order. Processors other than x86 may reorder loads, and stores. BPF of Linux 6.1 has no
// acquire and no release, but two things that order. The first: an atomic operation whose result is
// used, or an exchange, is a full barrier. If it is not used, the operation orders nothing (BPF_OR
// without BPF_FETCH, stset on arm64).
#define or_ordered(p, v) ({ typeof(*(p)) was = __sync_fetch_and_or(p, v); opaque(was); was; })
#define store_ordered(p, v) __sync_lock_test_and_set(p, v)
// store_release is the same, but does not wait for the cold lines of earlier stores where the
// processor itself keeps stores in order (x86, Intel SDM volume 3, 8.2.2). There only the compiler
// must not reorder them. Programs are compiled once for all processors, and no helper reports on
// which one they run, so the loader sets in_order. For a processor that it does not know it sets 0.
#define store_release(p, v, in_order) ({ \
	barrier(); \
	if (in_order) \
		WRITE_ONCE(*(p), (v)); \
	else \
		store_ordered(p, v); \
})
// The second: a load whose address depends on the result of an earlier load comes after it.
// depends_on(v) is 0 and depends on v; x86 recognises the 0 and does not wait.
#define depends_on(v) ({ __u64 zero_of = (v); asm volatile("%0 ^= %0" : "+r"(zero_of)); zero_of; })
// clang-format on

#define be16(x) __builtin_bswap16(x)
#define be32(x) __builtin_bswap32(x)
#define be64(x) __builtin_bswap64(x)

// How clang describes a map to the loader.
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define __array(name, val) typeof(val) *name[]

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_INNER_MAP = 1 << 12,
	BPF_F_INGRESS = 1,
	BPF_ADJ_ROOM_MAC = 1,
	BPF_F_RECOMPUTE_CSUM = 1 << 0,
	BPF_F_PSEUDO_HDR = 1 << 4,
	BPF_F_MARK_MANGLED_0 = 1 << 5,
	BPF_F_IPV6 = 1 << 7, // 6.16
};

// Program verdicts of tc.
enum { TC_ACT_UNSPEC = -1, TC_ACT_OK = 0, TC_ACT_SHOT = 2 };

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	__u64 sk;
	__u32 gso_size;
};

struct bpf_timer {
	__u64 : 64;
	__u64 : 64;
} __attribute__((aligned(8)));

// For bpf_fib_lookup. It returns the next hop in dst, the interface, and the MTU of the route in
// tot_len.
enum { AF_INET = 2, AF_INET6 = 10 };
enum { FIB_SUCCESS = 0, FIB_NO_NEIGH = 7 };

struct bpf_fib_lookup {
	__u8 family;
	__u8 l4_protocol;
	__be16 sport;
	__be16 dport;
	__u16 tot_len;
	__u32 ifindex;
	__be32 flowinfo;
	__be32 src[4];
	__be32 dst[4];
	__u32 tbid;
	__u8 smac[6];
	__u8 dmac[6];
};

struct bpf_redir_neigh {
	__u32 nh_family;
	__be32 nh[4];
};

struct bpf_sock_tuple {
	union {
		struct {
			__be32 saddr, daddr;
			__be16 sport, dport;
		} four;
		struct {
			__be32 saddr[4], daddr[4];
			__be16 sport, dport;
		} six;
	};
};

struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port;
	__be16 dst_port;
	__u16 zero;
	__u32 dst_ip4;
	__u32 dst_ip6[4];
	__u32 state;
	__s32 rx_queue_mapping;
};

// Helpers, by their numbers.
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value,
				   __u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static long (*bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 len,
				   __u64 flags) = (void *)9;
static long (*bpf_l3_csum_replace)(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to,
				   __u64 size) = (void *)10;
static long (*bpf_l4_csum_replace)(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to,
				   __u64 flags) = (void *)11;
static long (*bpf_tail_call)(void *skb, void *programs, __u32 index) = (void *)12;
static long (*bpf_clone_redirect)(struct __sk_buff *skb, __u32 ifindex, __u64 flags) = (void *)13;
static long (*bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)23;
static long (*bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static __s64 (*bpf_csum_diff)(__be32 *from, __u32 from_size, __be32 *to, __u32 to_size,
			      __u32 seed) = (void *)28;
static long (*bpf_skb_change_type)(struct __sk_buff *skb, __u32 type) = (void *)32;
static long (*bpf_skb_change_tail)(struct __sk_buff *skb, __u32 len, __u64 flags) = (void *)38;
static long (*bpf_skb_pull_data)(struct __sk_buff *skb, __u32 len) = (void *)39;
static __s64 (*bpf_csum_update)(struct __sk_buff *skb, __u32 csum) = (void *)40;
static long (*bpf_skb_change_head)(struct __sk_buff *skb, __u32 len, __u64 flags) = (void *)43;
static long (*bpf_skb_adjust_room)(struct __sk_buff *skb, __s32 len, __u32 mode,
				   __u64 flags) = (void *)50;
static long (*bpf_fib_lookup)(void *ctx, struct bpf_fib_lookup *params, int plen,
			      __u32 flags) = (void *)69;
static void *(*bpf_sk_lookup_udp)(void *ctx, struct bpf_sock_tuple *tuple, __u32 size, __u64 netns,
				  __u64 flags) = (void *)85;
static long (*bpf_sk_release)(void *sock) = (void *)86;
static void *(*bpf_skc_lookup_tcp)(void *ctx, struct bpf_sock_tuple *tuple, __u32 size, __u64 netns,
				   __u64 flags) = (void *)99;
static __u64 (*bpf_jiffies64)(void) = (void *)118;
static void *(*bpf_skc_to_tcp_sock)(void *sock) = (void *)137;
static void *(*bpf_ringbuf_reserve)(void *ringbuf, __u64 size, __u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static void (*bpf_ringbuf_discard)(void *data, __u64 flags) = (void *)133;
static __u64 (*bpf_ringbuf_query)(void *ringbuf, __u64 flags) = (void *)134;
static long (*bpf_redirect_neigh)(__u32 ifindex, struct bpf_redir_neigh *params, int plen,
				  __u64 flags) = (void *)152;
static long (*bpf_redirect_peer)(__u32 ifindex, __u64 flags) = (void *)155;
static __u64 (*bpf_ktime_get_coarse_ns)(void) = (void *)160;
static long (*bpf_sk_assign)(struct __sk_buff *skb, void *sock, __u64 flags) = (void *)124;
static long (*bpf_check_mtu)(void *ctx, __u32 ifindex, __u32 *mtu_len, __s32 len_diff,
			     __u64 flags) = (void *)163;
static long (*bpf_timer_init)(struct bpf_timer *timer, void *map, __u64 flags) = (void *)169;
static long (*bpf_timer_set_callback)(struct bpf_timer *timer, void *callback) = (void *)170;
static long (*bpf_timer_start)(struct bpf_timer *timer, __u64 nsecs, __u64 flags) = (void *)171;
static long (*bpf_loop)(__u32 nr_loops, void *callback, void *ctx, __u64 flags) = (void *)181;
static void *(*bpf_skc_to_mptcp_sock)(void *sock) = (void *)196;
static __s64 (*bpf_tcp_raw_gen_syncookie_ipv4)(void *ip, void *tcp, __u32 tcp_len) = (void *)204;
static __s64 (*bpf_tcp_raw_gen_syncookie_ipv6)(void *ip, void *tcp, __u32 tcp_len) = (void *)205;
static long (*bpf_tcp_raw_check_syncookie_ipv4)(void *ip, void *tcp) = (void *)206;
static long (*bpf_tcp_raw_check_syncookie_ipv6)(void *ip, void *tcp) = (void *)207;
