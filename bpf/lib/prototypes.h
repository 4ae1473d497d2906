// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Prototypes of global functions that a header calls although a later header defines them. Here
// they depend on no header but packet.h. Every other header uses only what it includes.
#pragma once

#include "packet.h"

// table_insert.h: the packet and the state at a place have the same addresses and ports in the pod,
// but only one of them goes through a published port. So the packet does not replace the state.
__noinline int is_other_flow(struct cpu *c, __u32 place);

// cookie.h
__noinline int make_cookie(struct __sk_buff *skb, struct cpu *c);

// next_hop.h
__noinline int tcp_socket(struct __sk_buff *skb, struct cpu *c, __u32 listening);
__noinline int udp_socket(struct __sk_buff *skb, struct cpu *c, __u32 listening);
__noinline int resolve_next_hop(struct __sk_buff *skb, struct cpu *c, __u32 l2);
__noinline int answer_hop(struct __sk_buff *skb, struct cpu *c);
__noinline int send_hop(struct __sk_buff *skb, struct cpu *c, __u32 l2);
