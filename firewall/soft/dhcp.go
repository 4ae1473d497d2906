package soft

import (
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// dhcpPorts reports whether a UDP packet has ports by which it may be essential: the fast path
// leaves it alone. They are neighbours, which one comparison rules out for most packets.
func dhcpPorts(ports uint32) bool {
	return (ports>>16)-(ports&0xffff)+1 < 3 && (ports == packet.DHCPSent ||
		ports == packet.DHCPReceived || ports == packet.DHCP6Sent || ports == packet.DHCP6Received)
}

// dhcp reports whether the packet belongs to the host's own DHCP client: section 2.
func (j *job) dhcp() bool {
	sent, received := j.p.DHCPClient()
	h, hook := j.cfg.host, &j.in.Hook
	if hook.Dir == firewall.Out {
		f := h.iface(hook.Xmit)
		return sent && hook.Recv == 0 && f != nil && f.usesDHCP
	}
	f := h.iface(hook.Recv)
	if !received || f == nil || !f.usesDHCP {
		return false
	}
	_, lo := j.p.DstWords()
	return j.p.Version == 6 || uint32(lo) == 0xffffffff || !f.has4 ||
		h.isMe(&j.p.DstIP, j.p.Version)
}
