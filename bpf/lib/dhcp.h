// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the host's own DHCP client sends and receives, docs/design/0003-evaluation.md section 2.
#pragma once

#include "walk.h"

// dhcp_ports: a UDP packet with these ports may be the client's. The two ports differ by one, so
// one comparison rules out most packets.
static __always_inline int dhcp_ports(__u32 ports)
{
	return unlikely((ports >> 16) - (ports & 0xffff) + 1 < 3) &&
	       (ports == DHCP_SENT || ports == DHCP_RECEIVED || ports == DHCP6_SENT ||
		ports == DHCP6_RECEIVED);
}

// is_dhcp: the packet, which has such ports, belongs to the host's client. It is not forwarded: a
// forwarded one has a receive interface at egress, and none of these destinations at ingress.
__noinline int is_dhcp(struct cpu *c)
{
	if (!c)
		return 0;
	const struct packet *p = &c->packet;
	__u32 ports = p->ports, out = p->dir == DIR_OUT, index = out ? p->xmit : p->recv;
	struct iface *f = bpf_map_lookup_elem(&ifaces, &index);
	if (!f || !(f->dhcp & DHCP_CLIENT) || p->frag & (FRAG_FIRST | FRAG_LATER) ||
	    p->ext_hdrs & EXT_FRAGMENT || (out && p->recv))
		return 0;
	if (p->version == 4) {
		__u32 to = p->dst_lo;
		if (ports != (out ? DHCP_SENT : DHCP_RECEIVED) || to >> 28 == 14)
			return 0;
		return out || to == ~0U || f->dhcp & DHCP_NO_ADDRESS ||
		       is_mine(p->version, p->dst_hi, p->dst_lo);
	}
	if (out)
		return ports == DHCP6_SENT &&
		       (p->dst_hi >> 56 != 0xff ||
			(p->dst_hi == 0xff02ULL << 48 && p->dst_lo == 0x10002));
	return ports == DHCP6_RECEIVED && is_local6(p->src_hi) && is_local6(p->dst_hi);
}
