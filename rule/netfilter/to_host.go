package netfilter

import (
	"net/netip"
	"slices"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Tables of addresses at which the host takes packets, beside its own.
const (
	// Broadcast has the addresses to which the networks of the host broadcast.
	Broadcast = "broadcast"
	// Local has what local routes of the host lead to. It is missing if there are no such routes.
	Local = "local-routes"
	// Anycast has the addresses that every router of a network has beside its own (RFC 4291
	// section 2.6.1). Netfilter's input chains see packets to them, and they have not the type
	// local. It is missing on a host without networks of IPv6.
	Anycast = "router-anycast"
)

// aboutTables are the comments above these tables.
var aboutTables = map[string]string{
	Broadcast: "What the host's networks broadcast to. Change it when the networks change.",
	Local:     "What the host's local routes lead to. Change it when these routes change.",
	Anycast: "What every router of the host's networks takes packets at. Change it when the " +
		"networks\nchange.",
}

// broadcast fills the table of broadcast addresses.
func (s *ruleset) broadcast(o Options) {
	if s.seen&ipv4 == 0 {
		return
	}
	t := rule.Table{}
	for _, p := range o.Networks {
		if !p.Addr().Is4() || p.Bits() > 30 {
			continue
		}
		a := p.Masked().Addr().As4()
		for bit := p.Bits(); bit < 32; bit++ {
			a[bit/8] |= 0x80 >> (bit % 8)
		}
		t[netip.PrefixFrom(netip.AddrFrom4(a), 32)] = 0
	}
	s.tables[Broadcast] = t
	if len(t) == 0 {
		s.note(Place{}, "the table %s has to hold the broadcast addresses of the host's networks, "+
			"such as 192.0.2.255: give the networks by --network", Broadcast)
	}
}

// localRoutes fills the table Local. Sources are read after it: rules may ask for the type local.
func (s *ruleset) localRoutes(o Options) {
	for _, p := range o.Local {
		own := p.IsSingleIP() && slices.ContainsFunc(o.Networks, func(n netip.Prefix) bool {
			return n.Addr() == p.Addr()
		})
		if !own && !p.Addr().IsLoopback() {
			s.add(Local, p)
		}
	}
}

// anycast fills the table Anycast, before sources are read. As in Linux, a network of two addresses
// has none (RFC 6164).
func (s *ruleset) anycast(o Options) {
	for _, p := range o.Networks {
		a := p.Masked().Addr()
		own := slices.ContainsFunc(o.Networks, func(n netip.Prefix) bool { return n.Addr() == a })
		if a.Is6() && p.Bits() <= 126 && !own {
			s.add(Anycast, netip.PrefixFrom(a, 128))
		}
	}
}

// butAnycast returns the clauses that are true where one of the tests is, or with not where none
// is. For local addresses the tests ask for me, which on a router has what is in the table Anycast:
// these addresses do not count. table is the test of that table.
func (s *ruleset) butAnycast(families int, not bool, tests []rule.Test,
	table op.Cond) []rule.Clause {
	isMe := func(t rule.Test) bool { return t.Op == op.CondSrcMe || t.Op == op.CondDstMe }
	router := rule.Test{Op: table, Name: Anycast}
	switch {
	case families&ipv6 == 0 || s.tables[Anycast] == nil || !slices.ContainsFunc(tests, isMe):
		if not {
			return negated(tests)
		}
		return []rule.Clause{tests}
	case !not:
		router.Not = true
		return []rule.Clause{tests, {router}}
	}
	all := negated(tests)
	for i, t := range tests {
		if isMe(t) {
			all[i] = append(all[i], router)
		}
	}
	return all
}

// add adds a member of a table, and makes the table.
func (s *ruleset) add(table string, p netip.Prefix) {
	if s.tables[table] == nil {
		s.tables[table] = rule.Table{}
	}
	s.tables[table][p.Masked()] = 0
}

// toHost is true for packets that netfilter's input chains see.
func (w *writer) toHost(families int) rule.Clause {
	c := rule.Clause{{Op: op.CondDstMe}}
	var groups []netip.Prefix
	if families&ipv4 != 0 {
		groups = append(groups, netip.MustParsePrefix("127.0.0.0/8"),
			netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"))
	}
	if families&ipv6 != 0 {
		groups = append(groups, netip.MustParsePrefix("ff00::/8"))
	}
	c = append(c, rule.Test{Op: op.CondDstIn, Prefixes: groups})
	if families&ipv4 != 0 {
		c = append(c, rule.Test{Op: op.CondDstTable, Name: Broadcast})
	}
	if families&ipv6 != 0 && w.set.tables[Anycast] != nil {
		c = append(c, rule.Test{Op: op.CondDstTable, Name: Anycast})
	}
	if w.set.tables[Local] != nil {
		c = append(c, rule.Test{Op: op.CondDstTable, Name: Local})
	}
	return c
}

// own is true for what this host sends: its addresses, those of the loopback and of local routes,
// and none yet. At the tunnel forwarded packets have no receive interface either.
func (w *writer) own(families int) rule.Clause {
	var others []netip.Prefix
	if families&ipv4 != 0 {
		others = append(others, netip.MustParsePrefix("127.0.0.0/8"),
			netip.MustParsePrefix("0.0.0.0/32"))
	}
	if families&ipv6 != 0 {
		others = append(others, netip.MustParsePrefix("::1/128"),
			netip.MustParsePrefix("::/128"))
	}
	c := rule.Clause{{Op: op.CondSrcMe}, {Op: op.CondSrcIn, Prefixes: others}}
	if w.set.tables[Local] != nil {
		c = append(c, rule.Test{Op: op.CondSrcTable, Name: Local})
	}
	return c
}
