// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Upper devices, as netdev_master_upper_dev_link has them: a VLAN, a bond or a bridge above an
// interface. A frame crosses the hooks of both, and one state and one translation must be made: it
// is evaluated at the upper device, which has the addresses, and passes the lower one. The agent
// writes only upper devices whose hooks are on.
#pragma once

#include "maps.h"

// Which frames of a lower device an upper one takes. Of a VLAN the tag; of a bridge a link-layer
// address that it takes for its own. Neither: that the lower device is a port.
struct upper_key {
	__u32 ifindex; // of the lower device
	__be16 proto;  // of the tag, as on the wire
	__u16 vlan;
	__u8 mac[6];
	__u8 pad[2];
};

struct upper {
	__u32 ifindex;
	__u32 kind; // enum upper_kind
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct upper_key);
	__type(value, struct upper);
} uppers SEC(".maps");

// is_there reports whether the upper device exists: it may have gone while no agent ran.
static __always_inline int is_there(struct __sk_buff *skb, const struct upper *u)
{
	__u32 mtu = 0;

	return bpf_check_mtu(skb, u->ifindex, &mtu, 0, 0) >= 0;
}

// at_upper reports whether an upper device evaluates the frame, which then passes here.
__noinline int at_upper(struct __sk_buff *skb, __u32 dir)
{
	struct upper_key k = {.ifindex = skb->ifindex};

	if (skb->vlan_present) {
		k.proto = skb->vlan_proto;
		k.vlan = skb->vlan_tci & 0xfff;
		struct upper *vlan = bpf_map_lookup_elem(&uppers, &k);
		if (vlan)
			return is_there(skb, vlan);
		k.proto = 0;
		k.vlan = 0;
	}
	struct upper *u = bpf_map_lookup_elem(&uppers, &k);
	if (!u || !is_there(skb, u))
		return 0;
	if (u->kind == UPPER_BOND)
		return 1;
	if (dir == DIR_IN)
		return bpf_skb_load_bytes(skb, 0, k.mac, sizeof(k.mac)) == 0 &&
		       bpf_map_lookup_elem(&uppers, &k) != NULL;
	// What a bridge forwards from port to port came in by another port. Everything else has
	// passed the hook of the bridge.
	k.ifindex = skb->ingress_ifindex;
	struct upper *from = bpf_map_lookup_elem(&uppers, &k);
	return !from || from->ifindex != u->ifindex;
}
