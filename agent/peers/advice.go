package peers

import (
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/overlay"
)

// IsUserTunnel reports whether the interface of a name is the tunnel's, whose packets the tunnel's
// own engine evaluates.
func (p *Service) IsUserTunnel(name string) bool {
	return p.ownsName.Load() && name == p.config.Settings.Name
}

// Index returns the index of the tunnel's interface, 0 if there is none.
func (p *Service) Index() uint32 {
	if t := p.tunnel.Load(); t != nil {
		return uint32(t.device.Index())
	}
	return 0
}

// advice explains what the rules would do to the encrypted packets themselves, which are packets
// like any other where they leave the host. A tunnel that its own node's rules cut is hard to
// understand.
func (p *Service) advice(peer overlay.Peer) string {
	if peer.Unencrypted {
		return ""
	}
	conn, err := routes.Open()
	if err != nil {
		return ""
	}
	defer conn.Close()
	for _, e := range peer.Endpoints {
		to, err := netip.ParseAddrPort(e)
		if err != nil {
			continue
		}
		route, err := conn.RouteTo(to.Addr())
		if err != nil || !route.Src.IsValid() {
			continue
		}
		from := netip.AddrPortFrom(route.Src, p.config.Settings.Port)
		via := p.config.Links.Name(uint32(route.Link))
		if !p.config.Guards(via) {
			continue
		}
		out := fmt.Sprintf("out via %s udp %s -> %s", via, from, to)
		in := fmt.Sprintf("in via %s udp %s -> %s", via, to, from)
		for _, packet := range []string{out, in} {
			if a, err := p.config.Why(api.Why{Packet: packet}); err == nil && !a.Passed {
				return fmt.Sprintf("rule %d refuses the encrypted packets (%s); let them pass:\n"+
					"  weir fw add allow udp from me %d to %s %d out\n"+
					"  weir fw add allow udp from %s %d to me %d in", a.Rule, packet, from.Port(),
					to.Addr(), to.Port(), to.Addr(), to.Port(), from.Port())
			}
		}
	}
	return ""
}

// Port returns the port of the tunnel, 0 when there is none and none is wanted.
func (p *Service) Port() uint16 {
	s := p.config.Settings
	if s.On || p.tunnel.Load() != nil {
		return s.Port
	}
	return 0
}
