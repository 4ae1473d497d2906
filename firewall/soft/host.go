package soft

import (
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// host is what rules can ask about the machine: its interfaces, its addresses, its routes. It is
// immutable, made for one Program.
type host struct {
	ifs       map[uint32]*iface
	small     [16]*iface // ifs with an index below 16
	me        map[[2]uint64]struct{}
	local     prefixes // of more than one address, which are the host's too
	connected prefixes // networks of interfaces; the value is the index in nets
	nets      [][]uint32
	routes    prefixes // the value is the index in via
	via       []firewall.Route
}

// iface is one interface in the numbers of a Program.
type iface struct {
	name  int32  // name id, -1 when no rule names it
	globs uint64 // bit per glob id
	addrs []netip.Addr
	// firewall.Interface.UsesDHCP and HasAddress4
	usesDHCP, has4 bool
	tunnel         bool
}

// newHost prepares the answers for a Program.
func newHost(p *program.Program, ifs []firewall.Interface, routes []firewall.Route) *host {
	h := &host{ifs: make(map[uint32]*iface, len(ifs)), me: map[[2]uint64]struct{}{}}
	names := make(map[string]int32, len(p.Names))
	for i, n := range p.Names {
		names[n] = int32(i)
	}
	for _, in := range ifs {
		f := &iface{name: -1, usesDHCP: in.UsesDHCP(), has4: in.HasAddress4(),
			tunnel: in.Tunnel}
		if id, ok := names[in.Name]; ok {
			f.name = id
		}
		for g, pattern := range p.Globs {
			if rule.Glob(pattern, in.Name) {
				f.globs |= 1 << g
			}
		}
		for _, a := range in.Addrs {
			f.addrs = append(f.addrs, a.Addr())
			h.connect(a.Masked(), in.Index)
		}
		for _, p := range in.Mine() {
			if !p.IsSingleIP() {
				h.local.set(p, 0, true)
				continue
			}
			hi, lo := packet.AddrWords(p.Addr())
			h.me[[2]uint64{hi, lo}] = struct{}{}
		}
		h.ifs[in.Index] = f
		if in.Index < uint32(len(h.small)) {
			h.small[in.Index] = f
		}
	}
	for _, r := range routes {
		if _, known := h.routes.exact(r.Dst); !known { // the first of several to one prefix counts
			h.routes.set(r.Dst, uint32(len(h.via)), true)
			h.via = append(h.via, r)
		}
	}
	return h
}

// connect records that an interface is in a network.
func (h *host) connect(p netip.Prefix, index uint32) {
	if v, ok := h.connected.exact(p); ok {
		h.nets[v] = append(h.nets[v], index)
		return
	}
	h.connected.set(p, uint32(len(h.nets)), true)
	h.nets = append(h.nets, []uint32{index})
}

// iface returns the interface with an index, nil for none or an unknown one.
func (h *host) iface(index uint32) *iface {
	if index < uint32(len(h.small)) {
		return h.small[index]
	}
	return h.ifs[index]
}

// isMe reports whether an address is the host's.
func (h *host) isMe(a *[16]byte, version uint8) bool {
	hi, lo := addrWords(a)
	if _, ok := h.me[[2]uint64{hi, lo}]; ok {
		return true
	}
	_, ok := h.local.find(hi, lo, version == 4)
	return ok
}

// reverse reports whether the route back to an address leaves by an interface.
func (h *host) reverse(hi, lo uint64, v4 bool, index uint32) bool {
	v, ok := h.routes.find(hi, lo, v4)
	return ok && !h.via[v].Blackhole && h.via[v].Interface == index
}

// reachable reports whether there is a route to an address that is neither a default route nor a
// blackhole.
func (h *host) reachable(hi, lo uint64, v4 bool) bool {
	v, ok := h.routes.find(hi, lo, v4)
	return ok && !h.via[v].Blackhole && h.via[v].Dst.Bits() != 0
}

// spoofed reports whether an address belongs to a connected network of other interfaces only.
func (h *host) spoofed(hi, lo uint64, v4 bool, index uint32) bool {
	v, ok := h.connected.find(hi, lo, v4)
	if !ok {
		return false
	}
	for _, i := range h.nets[v] {
		if i == index {
			return false
		}
	}
	return true
}
