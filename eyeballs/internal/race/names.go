package race

import (
	"net/netip"
	"slices"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/svcb"
)

// name is what is known about one name of the race: the caller's, the target of an alias, or the
// target of a service.
type name struct {
	name              string
	queried, answered dns.Type
	v4, v6            []netip.Addr
	services          []svcb.Record
	alias             string // where an AliasMode record points
}

// query sends those questions about a name that were not sent before.
func (m *Machine) query(what string, types dns.Type) {
	n := m.find(what)
	if n == nil {
		if len(m.names) == MaxNames {
			return
		}
		m.names = append(m.names, name{name: what})
		n = &m.names[len(m.names)-1]
	}
	missing := types &^ n.queried
	n.queried |= missing
	if https := missing & dns.HTTPS; https != 0 && len(m.names) == 1 && m.cfg.ServiceName != "" {
		m.commands = append(m.commands, Command{Kind: Query, Name: m.cfg.ServiceName, Types: https})
		missing &^= https
	}
	if missing != 0 {
		m.commands = append(m.commands, Command{Kind: Query, Name: what, Types: missing})
	}
}

func (m *Machine) find(what string) *name {
	for i := range m.names {
		if m.names[i].name == what {
			return &m.names[i]
		}
	}
	return nil
}

// answer stores an answer and sends the questions that follow from it. It reports whether anything
// changed.
func (m *Machine) answer(a dns.Answer) bool {
	n := m.find(a.Name)
	if a.Type == dns.HTTPS && m.cfg.ServiceName != "" && a.Name == m.cfg.ServiceName &&
		len(m.names) > 0 {
		n = &m.names[0]
	}
	if n == nil || n.answered&a.Type != 0 || n.queried&a.Type == 0 {
		return false
	}
	n.answered |= a.Type
	if a.NoName && a.Type&(dns.A|dns.AAAA) != 0 {
		// The name does not exist, so neither do its service records. Do not wait for a server that
		// drops questions of that type.
		if n.name != m.cfg.Name || m.cfg.ServiceName == "" {
			n.answered |= n.queried & dns.HTTPS
		}
	}
	switch a.Type {
	case dns.A:
		n.v4 = a.Addrs
	case dns.AAAA:
		n.v6 = a.Addrs
	case dns.HTTPS:
		m.serviceAnswer(n, a.Services)
	case dns.Prefix64:
		m.prefixAnswer(a.Prefixes)
	}
	return true
}

func (m *Machine) serviceAnswer(n *name, records []svcb.Record) {
	addresses := m.cfg.Types & (dns.A | dns.AAAA)
	for i := range records {
		if r := &records[i]; r.Alias() && r.Target != "" {
			// With an alias, service records are ignored (RFC 9460 section 2.4.2).
			n.alias = r.Target
			m.query(r.Target, addresses|dns.HTTPS)
			return
		}
	}
	usable := make([]svcb.Record, 0, len(records))
	for _, r := range records {
		if !r.Alias() && r.Speaks(m.cfg.Protocols) {
			usable = append(usable, r)
		}
	}
	if m.cfg.Shuffle != nil {
		m.cfg.Shuffle(usable)
	}
	slices.SortStableFunc(usable, func(a, b svcb.Record) int {
		return int(a.Priority) - int(b.Priority)
	})
	n.services = usable
	for i := range usable {
		if t := usable[i].Target; t != "" {
			m.query(t, addresses)
		}
	}
}

// prefixAnswer makes IPv4 reachable. Only from now on are A records useful (HEv3 sections 4.1 and
// 8).
func (m *Machine) prefixAnswer(prefixes []netip.Prefix) {
	m.prefixes = prefixes
	if len(prefixes) == 0 || m.cfg.Types&dns.A != 0 {
		return
	}
	m.cfg.Types |= dns.A
	for i := range m.names {
		if m.names[i].queried&dns.AAAA != 0 {
			m.query(m.names[i].name, dns.A)
		}
	}
}

// pending reports whether an answer is outstanding.
func (m *Machine) pending() bool {
	for i := range m.names {
		if m.names[i].queried&^m.names[i].answered != 0 {
			return true
		}
	}
	return false
}

// end returns the name at the end of the aliases from the first name. ok is false while the service
// records at the end of the chain are outstanding.
func (m *Machine) end() (n *name, ok bool) {
	n = &m.names[0]
	for range MaxNames {
		if n.queried&^n.answered&dns.HTTPS != 0 {
			return n, false
		}
		next := m.find(n.alias)
		if n.alias == "" || next == nil {
			return n, true
		}
		n = next
	}
	return n, true
}

// settled reports whether the race knows enough to begin before the Resolution Delay is over. It
// needs the service records or their absence, and the preferred family of the name that is tried
// first. A hint counts as an answer (HEv3 section 4.2).
func (m *Machine) settled() bool {
	n, ok := m.end()
	if !ok {
		return false
	}
	prefer := dns.AAAA
	if m.cfg.PreferV4 {
		prefer = dns.A
	}
	if len(n.services) > 0 {
		first := &n.services[0]
		hints := first.Hints6
		if m.cfg.PreferV4 {
			hints = first.Hints4
		}
		if len(hints) > 0 {
			return true
		}
		if t := m.find(first.Target); t != nil {
			n = t
		}
	}
	return n.queried&^n.answered&prefer == 0
}
