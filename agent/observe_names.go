package agent

import (
	"net/netip"

	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/rule"
)

// nameThings gives the observer what it needs to tell names: interfaces from the links, tables from the rulebook.
func (n *Node) nameThings(o *observer) {
	o.names.Interface = n.links.name
	o.names.Me = n.links.isMine
	o.names.InterfaceHas = n.links.has
	o.names.Table = func(name string, a netip.Addr) (value uint32, found bool) {
		n.book.view(func(r ruleState, _ *rule.Program) { value, found = offline.Member(r.set.Tables[name], a) })
		return value, found
	}
}

// name returns the name of an interface, "" if it is not known.
func (l *links) name(index uint32) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[int(index)].Name
}

// isMine says whether an address is one of the host's.
func (l *links) isMine(a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range l.addrs {
		for _, p := range all {
			if p.Addr() == a {
				return true
			}
		}
	}
	return false
}

// has says whether an interface has an address.
func (l *links) has(name string, a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for index, link := range l.byID {
		if link.Name != name {
			continue
		}
		for _, p := range l.addrs[index] {
			if p.Addr() == a {
				return true
			}
		}
	}
	return false
}
