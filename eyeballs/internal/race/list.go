package race

import (
	"net/netip"
	"slices"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/internal/nat64"
	"github.com/weirnet/weir/eyeballs/svcb"
)

// rebuild makes the list from everything known: one group per service in the order of priority,
// then the addresses without a service (HEv3 section 5). Endpoints that have been tried stay on the
// list, so that a late family takes its turn between them and what follows.
func (m *Machine) rebuild() {
	m.list = m.list[:0]
	end, _ := m.end()
	for i := range end.services {
		m.serviceGroup(end, &end.services[i])
	}
	m.group(end.v6, end.v4, m.cfg.Port)
	if first := &m.names[0]; first != end {
		m.group(first.v6, first.v4, m.cfg.Port)
	}
}

func (m *Machine) serviceGroup(owner *name, r *svcb.Record) {
	t := owner
	if r.Target != "" {
		t = m.find(r.Target)
	}
	port := r.Port
	if port == 0 {
		port = m.cfg.Port
	}
	v6, v4 := r.Hints6, r.Hints4
	if t != nil {
		// An answer, even an empty one, replaces the hints of its family.
		if t.answered&dns.AAAA != 0 {
			v6 = t.v6
		}
		if t.answered&dns.A != 0 {
			v4 = t.v4
		}
	}
	if m.cfg.Types&dns.AAAA == 0 {
		v6 = nil
	}
	if m.cfg.Types&dns.A == 0 {
		v4 = nil
	}
	m.group(v6, v4, port)
}

// group appends the endpoints that are not on the list yet, sorted and with alternating families.
func (m *Machine) group(v6, v4 []netip.Addr, port uint16) {
	group := make([]Endpoint, 0, len(v6)+len(v4))
	for _, addrs := range [2][]netip.Addr{v6, v4} {
		for _, a := range addrs {
			group = m.endpoints(group, a, port)
		}
	}
	if m.cfg.Sort != nil && len(group) > 1 {
		m.cfg.Sort(group)
	}
	if len(group) > 0 {
		interleave(group, m.cfg.FirstFamilyCount, m.add)
	}
}

func (m *Machine) add(ep Endpoint) {
	listed := slices.ContainsFunc(m.list, func(e entry) bool { return e.Addr == ep.Addr })
	if !listed && len(m.list) < MaxEndpoints {
		m.list = append(m.list, entry{Endpoint: ep, tried: m.tried(ep.Addr)})
	}
}

func (m *Machine) tried(addr netip.AddrPort) bool {
	return slices.ContainsFunc(m.attempts, func(a attempt) bool { return a.addr == addr })
}

// endpoints appends the endpoints of one address. An address that a DNS64 synthesised is turned
// back to IPv4 first. Without a route for IPv4, an IPv4 address becomes one endpoint for each
// prefix, or none (HEv3 section 8).
func (m *Machine) endpoints(to []Endpoint, a netip.Addr, port uint16) []Endpoint {
	a = a.Unmap()
	for _, p := range m.prefixes {
		if v4, ok := nat64.Extract(p, a); ok && nat64.Synthesizable(v4) {
			a = v4
			break
		}
	}
	add := func(addr netip.Addr) {
		ap := netip.AddrPortFrom(addr, port)
		if !slices.ContainsFunc(to, func(e Endpoint) bool { return e.Addr == ap }) {
			to = append(to, Endpoint{Addr: ap, Known: a})
		}
	}
	if !a.Is4() || !m.cfg.NoV4 {
		add(a)
		return to
	}
	for _, p := range m.prefixes {
		if v6, ok := nat64.Synthesize(p, a); ok {
			add(v6)
		}
	}
	return to
}

// interleave calls add for each endpoint of group: as many as first of the leading family, then the
// families in turn (RFC 8305 section 4). The order within a family stays.
func interleave(group []Endpoint, first int, add func(Endpoint)) {
	lead := group[0].Known.Is4()
	seek := func(from int, v4 bool) int {
		for from < len(group) && group[from].Known.Is4() != v4 {
			from++
		}
		return from
	}
	i, j := seek(0, lead), seek(0, !lead)
	for n := 0; n < first-1 && i < len(group); n++ {
		add(group[i])
		i = seek(i+1, lead)
	}
	for i < len(group) || j < len(group) {
		if i < len(group) {
			add(group[i])
			i = seek(i+1, lead)
		}
		if j < len(group) {
			add(group[j])
			j = seek(j+1, !lead)
		}
	}
}
