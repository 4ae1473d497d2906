package pod

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// allocate chooses addresses and enters the pod in the list, not ready.
func (m *Manager) allocate(key string, spec Spec, id string) (*Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.conflictLocked(key, spec); err != nil {
		return nil, err
	}
	p := &Pod{Spec: spec, Key: key, HostIf: hostIf(key), Created: m.now().UTC(), NetnsID: id}
	p.Addrs = slices.Clone(spec.Addrs)
	mac, hostMAC := macs(key)
	p.HostMAC = hostMAC
	if p.MAC == nil {
		p.MAC = MAC(mac)
	}
	if p.MTU == 0 {
		p.MTU = m.config.MTU
	}
	if err := m.assignLocked(p); err != nil {
		return nil, err
	}
	m.pods[key] = p
	return p, nil
}

// assignLocked takes the wanted addresses from the pools and picks one of each family that was not
// asked for, unless there is to be none.
func (m *Manager) assignLocked(p *Pod) error {
	var taken []netip.Addr
	undo := func() {
		for _, a := range taken {
			m.releaseLocked(a)
		}
	}
	for _, pool := range m.pools {
		is4 := pool.Gateway().Is4()
		i := slices.IndexFunc(p.Addrs, func(a netip.Addr) bool { return a.Is4() == is4 })
		switch {
		case i >= 0 && p.ExternalIPAM && !pool.Prefix().Contains(p.Addrs[i]):
			// Another IPAM's range; the gateway is still ours, reached over the link.
		case i >= 0 && m.reserved[p.Addrs[i]]:
			delete(m.reserved, p.Addrs[i])
			taken = append(taken, p.Addrs[i])
		case i >= 0:
			if err := pool.Allocate(p.Addrs[i]); err != nil {
				undo()
				return fmt.Errorf("pod %s: %w", p.Name, err)
			}
			taken = append(taken, p.Addrs[i])
		case p.ExternalIPAM || p.OnlyAddrs:
			continue
		default:
			a, err := pool.AllocateAny()
			if err != nil {
				undo()
				return fmt.Errorf("pod %s: %w", p.Name, err)
			}
			p.Addrs, taken = append(p.Addrs, a), append(taken, a)
		}
		p.Gateway = append(p.Gateway, cmp.Or(p.nextHop(is4), pool.Gateway()))
	}
	for _, a := range p.Addrs {
		if !slices.ContainsFunc(p.Gateway, func(g netip.Addr) bool { return g.Is4() == a.Is4() }) {
			undo()
			return fmt.Errorf("pod %s: address %s has no pod range of its family on this node; "+
				"add one to [pods] ranges", p.Name, a)
		}
	}
	if len(p.Addrs) == 0 {
		return fmt.Errorf("pod %s: there is no pod range to take an address from; set [pods] "+
			"ranges in weir.toml", p.Name)
	}
	if err := p.checkPublishedFamilies(); err != nil {
		undo()
		return err
	}
	return nil
}

func (m *Manager) releaseLocked(a netip.Addr) {
	for _, pool := range m.pools {
		pool.Free(a)
	}
}

// conflictLocked refuses what another pod has already: its name, an address, a published port, the
// name of its interface. One that goes has given up its name and ports.
func (m *Manager) conflictLocked(key string, spec Spec) error {
	for _, o := range m.pods {
		if o.Key == key {
			continue
		}
		if o.HostIf == hostIf(key) {
			return fmt.Errorf("pod %s: the name of its interface, %s, is that of pod %s by "+
				"chance; choose another container id",
				spec.Name, o.HostIf, o.Name)
		}
		for _, a := range spec.Addrs {
			if slices.Contains(o.Addrs, a) {
				return fmt.Errorf("pod %s: address %s is in use by pod %s; choose another one, or "+
					"none", spec.Name, a, o.Name)
			}
		}
		if o.ending {
			continue
		}
		if sameName(o.Name, spec.Name) && o.Container != spec.Container {
			return fmt.Errorf("pod name %s is taken by container %s; choose another name",
				o.Name, o.Container)
		}
		if o.Container != spec.Container &&
			(o.Name == spec.Container || o.Container == spec.Name) {
			return fmt.Errorf("pod %s of container %s: pod %s of container %s exists, and a name "+
				"must not be the id of another container; choose another name", spec.Name,
				spec.Container, o.Name, o.Container)
		}
		for _, p := range spec.Publish {
			for _, q := range o.Publish {
				if o.Container == spec.Container && p.Port == q.Port {
					continue // they share it: publishedLocked
				}
				if p.Proto == q.Proto && p.HostPort == q.HostPort && hostsOverlap(p.Host, q.Host) {
					return fmt.Errorf("pod %s: host port %d is published for pod %s already; "+
						"publish another port, or another address of the host, or detach that pod",
						spec.Name, p.HostPort, o.Name)
				}
			}
		}
	}
	return nil
}

// sameName reports whether names of pods are one: for the name server of the pods they are when
// only capitals differ, and answers would lead to either.
func sameName(a, b string) bool { return strings.EqualFold(a, b) }

// holds reports whether the pod has the name, an address or a published port that is wanted for
// another one.
func (p *Pod) holds(s *Spec) bool {
	if sameName(p.Name, s.Name) && p.Container != s.Container {
		return true
	}
	for _, a := range s.Addrs {
		if slices.Contains(p.Addrs, a) {
			return true
		}
	}
	for _, want := range s.Publish {
		for _, have := range p.Publish {
			if want.Proto == have.Proto && want.HostPort == have.HostPort &&
				hostsOverlap(want.Host, have.Host) {
				return true
			}
		}
	}
	return false
}

// hostsOverlap reports whether one packet could match both host addresses.
func hostsOverlap(a, b netip.Addr) bool {
	if !a.IsValid() || !b.IsValid() || a == b {
		return true
	}
	return a.Is4() == b.Is4() && (a.IsUnspecified() || b.IsUnspecified())
}
