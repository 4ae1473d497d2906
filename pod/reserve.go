package pod

import (
	"fmt"
	"net/netip"
)

// Reserve reserves an address for a pod that will be attached later: want, or any of the family of
// the range when want is that range's unspecified address. Runtimes with an IPAM driver ask in this
// order. A reservation is not recorded: the runtime asks again after a restart.
func (m *Manager) Reserve(want netip.Addr) (netip.Addr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pool := range m.pools {
		if pool.Gateway().Is4() != want.Is4() {
			continue
		}
		var err error
		if want.IsUnspecified() {
			want, err = pool.AllocateAny()
		} else if !m.reserved[want] {
			err = pool.Allocate(want)
		}
		if err != nil {
			return netip.Addr{}, err
		}
		m.reserved[want] = true
		return want, nil
	}
	return netip.Addr{}, fmt.Errorf("this node has no pod range for %s; add one to [pods] ranges",
		want)
}

// Unreserve releases a reserved address. One that a pod has taken meanwhile stays with the pod.
func (m *Manager) Unreserve(a netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reserved[a] {
		delete(m.reserved, a)
		m.releaseLocked(a)
	}
}

// Ranges returns the node's pod ranges with their gateways.
func (m *Manager) Ranges() []Range {
	ranges := make([]Range, len(m.pools))
	for i, p := range m.pools {
		ranges[i] = Range{p.Prefix(), p.Gateway()}
	}
	return ranges
}

// Range is a pod range of the node.
type Range struct {
	Prefix  netip.Prefix
	Gateway netip.Addr
}
