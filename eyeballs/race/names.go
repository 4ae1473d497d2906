package race

import (
	"net/netip"
	"slices"

	"github.com/weirnet/weir/eyeballs/svcb"
)

// name is what is known of one name of the race: the one that the caller gave,
// the target of an alias, or the target of a service.
type name struct {
	name            string
	asked, answered Types
	v4, v6          []netip.Addr
	services        []svcb.Record
	alias           string // where an AliasMode record points
}

// ask puts the questions to the name that are new.
func (m *Machine) ask(what string, types Types) {
	n := m.find(what)
	if n == nil {
		if len(m.names) == MaxNames {
			return
		}
		m.names = append(m.names, name{name: what})
		n = &m.names[len(m.names)-1]
	}
	fresh := types &^ n.asked
	n.asked |= fresh
	if https := fresh & HTTPS; https != 0 && len(m.names) == 1 && m.cfg.ServiceName != "" {
		m.commands = append(m.commands, Command{Kind: Ask, Name: m.cfg.ServiceName, Types: https})
		fresh &^= https
	}
	if fresh != 0 {
		m.commands = append(m.commands, Command{Kind: Ask, Name: what, Types: fresh})
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

// answer files an answer and asks what follows from it. It reports whether
// anything changed.
func (m *Machine) answer(a Answer) bool {
	n := m.find(a.Name)
	if a.Type == HTTPS && m.cfg.ServiceName != "" && a.Name == m.cfg.ServiceName &&
		len(m.names) > 0 {
		n = &m.names[0]
	}
	if n == nil || n.answered&a.Type != 0 || n.asked&a.Type == 0 {
		return false
	}
	n.answered |= a.Type
	if a.NoName && a.Type&(A|AAAA) != 0 {
		// The name does not exist, so neither do its service records: do not wait
		// for a server that drops questions of that type.
		if n.name != m.cfg.Name || m.cfg.ServiceName == "" {
			n.answered |= n.asked & HTTPS
		}
	}
	switch a.Type {
	case A:
		n.v4 = a.Addrs
	case AAAA:
		n.v6 = a.Addrs
	case HTTPS:
		m.serviceAnswer(n, a.Services)
	case Prefix64:
		m.prefixAnswer(a.Prefixes)
	}
	return true
}

func (m *Machine) serviceAnswer(n *name, records []svcb.Record) {
	addresses := m.cfg.Types & (A | AAAA)
	for i := range records {
		if r := &records[i]; r.Alias() && r.Target != "" {
			// RFC 9460 section 2.4.2: with an alias, service records are ignored.
			n.alias = r.Target
			m.ask(r.Target, addresses|HTTPS)
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
			m.ask(t, addresses)
		}
	}
}

// prefixAnswer makes IPv4 reachable: now, and only now, A is worth asking
// (HEv3 sections 4.1 and 8).
func (m *Machine) prefixAnswer(prefixes []netip.Prefix) {
	m.prefixes = prefixes
	if len(prefixes) == 0 || m.cfg.Types&A != 0 {
		return
	}
	m.cfg.Types |= A
	for i := range m.names {
		if m.names[i].asked&AAAA != 0 {
			m.ask(m.names[i].name, A)
		}
	}
}

// pending reports whether an answer is still to come.
func (m *Machine) pending() bool {
	for i := range m.names {
		if m.names[i].asked&^m.names[i].answered != 0 {
			return true
		}
	}
	return false
}

// end follows the aliases from the first name; ok is false while the service
// records at the end of the chain are not in yet.
func (m *Machine) end() (n *name, ok bool) {
	n = &m.names[0]
	for range MaxNames {
		if n.asked&^n.answered&HTTPS != 0 {
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

// settled reports whether the race knows enough to begin without the Resolution
// Delay: service records or their absence, and the preferred family of the name
// that is tried first, be it by hint (HEv3 section 4.2).
func (m *Machine) settled() bool {
	n, ok := m.end()
	if !ok {
		return false
	}
	prefer := AAAA
	if m.cfg.PreferV4 {
		prefer = A
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
	return n.asked&^n.answered&prefer == 0
}
