package netfilter

import "github.com/weirnet/weir/packet/build"

// icmpError returns an ICMP error about the last packet of a flow, from its receiver or a router.
func (g *generator) icmpError(f *flowState) sent {
	to, from := f.a.Addr(), f.fromB
	router := f.b.Addr()
	if !f.lastA {
		to, from, router = f.b.Addr(), f.fromA, f.a.Addr()
	}
	types4, types6 := []uint8{3, 11}, []uint8{1, 2, 3}
	if g.rare {
		types4, types6 = []uint8{3, 4, 11, 12}, []uint8{1, 2, 3, 4}
	}
	if g.rare && from != nil && g.IntN(3) == 0 { // a router in between
		router = g.remote(to.Is6())
	}
	quote := f.last[:min(len(f.last), 60)]
	s := sent{what: "ICMP error", from: from, flow: f}
	if router.IsMulticast() || g.isBroadcast(router) {
		return g.first()
	}
	if to.Is4() {
		s.pkt = g.ip(router, to, build.ICMP{Type: pick(g, types4), Code: 0},
			build.Data(quote))
	} else {
		s.pkt = g.ip(router, to, build.ICMPv6{Type: pick(g, types6), Rest: 1280},
			build.Data(quote))
	}
	return s
}
