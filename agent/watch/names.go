package watch

import (
	"net/netip"
	"os"
	"sync"

	"github.com/weirnet/weir/observe"
)

// nameThings sets the sources of names: interfaces from the links, tables from the configuration,
// addresses from the pods and the tables, ports from /etc/services.
func (o *Observer) nameThings() {
	c := &o.config
	o.names.Interface = c.Links.Name
	o.names.Me = c.Links.IsMe
	o.names.InterfaceHas = c.Links.Has
	o.names.Table = c.Table
	if f, err := os.Open("/etc/services"); err == nil {
		if o.names.Services, err = observe.ReadServices(f); err != nil {
			c.Log.Warn("the names of ports are not known", "err", err)
		}
		f.Close()
	}
	o.refreshNames()
	o.names.Address = func(a netip.Addr) string { return o.addresses.Load().name(a, o.tableOf) }
}

// refreshNames looks at the names of addresses again: they change within a second.
func (o *Observer) refreshNames() {
	o.addresses.Store(&addressNames{pods: o.config.Pods.ByAddress(),
		found: map[netip.Addr]string{}})
}

// tableOf returns the first table of the rules, by name, that has an address, as "table:NAME".
func (o *Observer) tableOf(a netip.Addr) string {
	if name := o.config.Rules.TableOf(a); name != "" {
		return "table:" + name
	}
	return ""
}

// addressNames are the names of addresses, rebuilt every second. A pod has its name; what else is
// in a table has that of the table.
type addressNames struct {
	pods map[netip.Addr]string

	mu    sync.Mutex            // its place in the lock order: agent/doc.go
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
