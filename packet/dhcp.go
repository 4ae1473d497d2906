package packet

// The ports of the exchange between a DHCP client and a server, as in Packet.Ports: RFC 2131 4.1,
// RFC 8415 7.2.
const (
	DHCPSent      = 68<<16 | 67
	DHCPReceived  = 67<<16 | 68
	DHCP6Sent     = 546<<16 | 547
	DHCP6Received = 547<<16 | 546
)

// DHCPClient reports whether the packet can be one that a DHCP client sends to a server, or one
// that it receives from a server or relay:
//
//   - IPv4: between the ports 68 and 67, to one host or to 255.255.255.255. A server sends an offer
//     to the offered address, which the client does not have yet (RFC 2131 4.1).
//   - IPv6: from port 546 to 547 of one host or of ff02::1:2; from port 547 to 546 between
//     link-local addresses, since a client sends from one (RFC 8415 18.2).
//
// A fragment is neither.
func (p *Packet) DHCPClient() (sent, received bool) {
	if p.Proto != ProtoUDP || p.Reason != ReasonNone || p.Frag&fragState != 0 ||
		p.ExtHdrs&ExtFragment != 0 {
		return false, false
	}
	if p.Version == 4 {
		group := p.DstIP[12]>>4 == 14
		return p.Ports == DHCPSent && !group, p.Ports == DHCPReceived && !group
	}
	return p.Ports == DHCP6Sent && (p.DstIP[0] != 0xff || p.DstIP == allDHCPAgents),
		p.Ports == DHCP6Received && linkLocal(&p.SrcIP) && linkLocal(&p.DstIP)
}

// allDHCPAgents is ff02::1:2, All_DHCP_Relay_Agents_and_Servers (RFC 8415 7.1).
var allDHCPAgents = [16]byte{0: 0xff, 1: 2, 13: 1, 15: 2}

func linkLocal(a *[16]byte) bool { return a[0] == 0xfe && a[1]&0xc0 == 0x80 }
