package enginetest

import (
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// dhcp returns a packet of a DHCP client or server and where it is seen, mostly as they must be.
func (g random) dhcp() ([]byte, firewall.Hook) {
	v6, sent := g.chance(50), g.chance(50)
	client, server := uint16(68), uint16(67)
	from, to := "0.0.0.0", "255.255.255.255"
	if v6 {
		client, server = 546, 547
		from, to = "fe80::2", "ff02::1:2"
	}
	hook := firewall.Hook{Dir: firewall.Out, Xmit: 1 + g.Uint32N(4)}
	if !sent {
		client, server = server, client
		from, to = g.one("10.0.0.2", "192.168.0.5"),
			g.one("255.255.255.255", "10.0.0.1", "10.0.1.9")
		if v6 {
			from, to = "fe80::1", "fe80::2"
		}
		hook = firewall.Hook{Dir: firewall.In, Recv: 1 + g.Uint32N(4)}
	}
	c := craft{src: netip.MustParseAddr(from), dst: netip.MustParseAddr(to),
		proto: packet.ProtoUDP, ttl: 64, body: udpBody(client, server, g.IntN(40))}
	switch g.IntN(8) {
	case 0:
		c.src = g.addr(v6)
	case 1:
		c.dst = g.addr(v6)
	case 2:
		c.body = udpBody(server, client, 4)
	case 3:
		c.isFrag, c.frag = v6, 1
		if !v6 {
			c.frag = 0x2000
		}
	case 4:
		hook.Recv = g.Uint32N(5)
	case 5:
		if v6 { // an option that does nothing
			c.first, c.options = packet.ProtoHopByHop, []byte{0, 0, 1, 4, 0, 0, 0, 0}
		}
	}
	return c.bytes(), hook
}
