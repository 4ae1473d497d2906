package soft

import (
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// dhcpPorts reports whether a UDP packet has ports by which it may be essential: the fast path
// leaves it alone.
func dhcpPorts(ports uint32) bool {
	switch ports {
	case packet.DHCPSent, packet.DHCPReceived, packet.DHCP6Sent, packet.DHCP6Received:
		return true
	}
	return false
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
	hi, lo := j.p.DstWords()
	return j.p.Version == 6 || uint32(lo) == 0xffffffff || !f.has4 || h.isMe(hi, lo)
}
