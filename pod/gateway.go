package pod

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/nl"
)

// gateways returns the gateway addresses of the ranges.
func (m *Manager) gateways() []netip.Addr {
	var list []netip.Addr
	for _, p := range m.pools {
		list = append(list, p.Gateway())
	}
	return list
}

// earlierGateways returns recorded gateway addresses of ranges that the node does not have any
// more. A damaged record has none.
func (m *Manager) earlierGateways() []netip.Addr {
	recorded, err := m.store.loadGateways()
	if err != nil {
		return nil
	}
	now := m.gateways()
	return slices.DeleteFunc(recorded, func(a netip.Addr) bool { return slices.Contains(now, a) })
}

// recordGateways records the gateway addresses of the ranges, and earlier ones that the host still
// has.
func (m *Manager) recordGateways(earlier []netip.Addr) {
	if err := m.store.saveGateways(append(m.gateways(), earlier...)); err != nil {
		m.config.OnRecordError(err) // only Remove and later starts need it
	}
}

// splitNeeded splits earlier gateway addresses into those that a pod may need and others. One may
// be the next hop of a pod, or the source of the host's route to a pod with an address of another
// IPAM. The kernel removes that route with the address.
func (m *Manager) splitNeeded(earlier []netip.Addr) (needed, idle []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range earlier {
		use := false
		for _, p := range m.pods {
			use = use || p.ExternalIPAM || slices.Contains(p.Gateway, a)
		}
		if use {
			needed = append(needed, a)
		} else {
			idle = append(idle, a)
		}
	}
	return needed, idle
}

// deleteGateways takes gateway addresses from the loopback, as far as it has them.
func deleteGateways(conn *nl.Conn, gateways []netip.Addr) error {
	lo, err := conn.LinkByName("lo")
	if err != nil {
		return err
	}
	held, err := conn.Addrs(lo.Index)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range held {
		if a.Prefix.IsSingleIP() && slices.Contains(gateways, a.Prefix.Addr()) {
			errs = append(errs, conn.DeleteAddr(lo.Index, a.Prefix))
		}
	}
	return errors.Join(errs...)
}
