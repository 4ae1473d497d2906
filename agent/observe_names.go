package agent

import (
	"net/netip"
	"os"
	"sync"

	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/rule"
)

// nameThings gives the observer its sources of names: interfaces from the links, tables from the
// rulebook and from labels, addresses from the pods and the tables, ports from /etc/services.
func (n *Node) nameThings(o *observer) {
	o.names.Interface = n.links.name
	o.names.Me = n.links.isMine
	o.names.InterfaceHas = n.links.has
	o.names.Table = func(name string, a netip.Addr) (value uint32, found bool) {
		n.book.view(func(r ruleState, _ *rule.Program) {
			value, found = rulefile.Member(r.set.Tables[name], a)
		})
		return value, found || n.pods.Load() != nil && n.pods.Load().labels.has(name, a)
	}
	if f, err := os.Open("/etc/services"); err == nil {
		if o.names.Services, err = observe.ReadServices(f); err != nil {
			n.log.Warn("the names of ports are not known", "err", err)
		}
		f.Close()
	}
	o.refresh = func() {
		pods := map[netip.Addr]string{}
		if n.pods.Load() != nil {
			pods = n.pods.Load().byAddress()
		}
		o.addresses.Store(&addressNames{pods: pods, found: map[netip.Addr]string{}})
	}
	o.refresh()
	o.names.Address = func(a netip.Addr) string { return o.addresses.Load().name(a, n.tableOf) }
}

// addressNames are the names of addresses, rebuilt every second. A pod has its name; what else is
// in a table has that of the table.
type addressNames struct {
	pods map[netip.Addr]string

	mu    sync.Mutex            // its place in the lock order: doc.go
	found map[netip.Addr]string // guarded by mu; tables by address, "" for none
}

// tableLookups bounds how many addresses are looked up in the tables in a second: more have no name
// then.
const tableLookups = 4096

func (s *addressNames) name(a netip.Addr, tableOf func(netip.Addr) string) string {
	if name := s.pods[a]; name != "" || !a.IsValid() {
		return name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, known := s.found[a]
	if !known && len(s.found) < tableLookups {
		name = tableOf(a)
		s.found[a] = name
	}
	return name
}

// tableOf returns the first table of the rule file, by name, that has an address, as "table:NAME".
func (n *Node) tableOf(a netip.Addr) (name string) {
	n.book.view(func(r ruleState, _ *rule.Program) {
		for table, members := range r.set.Tables {
			if _, found := rulefile.Member(members, a); found &&
				(name == "" || "table:"+table < name) {
				name = "table:" + table
			}
		}
	})
	return name
}

// byAddress returns the names of all pods.
func (p *pods) byAddress() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, one := range p.manager.List() {
		for _, a := range one.Addrs {
			names[a] = "pod:" + one.Name
		}
	}
	return names
}

// name returns the name of an interface, "" if it is not known.
func (l *links) name(index uint32) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.pods[int(index)]; ok {
		return p.name
	}
	return l.byID[int(index)].Name
}

// isMine reports whether an address is one of the host's.
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

// has reports whether an interface has an address.
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
