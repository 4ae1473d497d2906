package enginetest

import (
	"net/netip"
	"strings"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// dhcp reports whether the packet is one that the host's DHCP client sends or receives: section 2,
// point 4.
func (j *job) dhcp() bool {
	p, h := &j.p, j.in.Hook
	if p.Proto != packet.ProtoUDP || p.Frag&(packet.FragFirst|packet.FragLater) != 0 ||
		p.ExtHdrs&packet.ExtFragment != 0 {
		return false
	}
	server, client := uint16(67), uint16(68)
	if p.Version == 6 {
		server, client = 547, 546
	}
	src, dst := p.Src(), p.Dst()
	if h.Dir == firewall.Out {
		to := !dst.IsMulticast() || dst == netip.MustParseAddr("ff02::1:2")
		return h.Recv == 0 && p.SrcPort() == client && p.DstPort() == server && to &&
			j.ofHost(h.Xmit) != nil
	}
	i := j.ofHost(h.Recv)
	if i == nil || p.SrcPort() != server || p.DstPort() != client || dst.IsMulticast() {
		return false
	}
	if p.Version == 6 {
		return src.IsLinkLocalUnicast() && dst.IsLinkLocalUnicast()
	}
	leased := false
	for _, a := range i.Addrs {
		leased = leased || a.Addr().Is4() && !a.Addr().IsLinkLocalUnicast()
	}
	return j.isMine(dst) || !leased || dst == netip.MustParseAddr("255.255.255.255")
}

// ofHost returns an interface that is not a pod's, nil if there is none with this index.
func (j *job) ofHost(index uint32) *firewall.Interface {
	for i := range j.ifs {
		if j.ifs[i].Index == index && !strings.HasPrefix(j.ifs[i].Name, "pod:") {
			return &j.ifs[i]
		}
	}
	return nil
}
