package pod

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
)

// Attach gives a container its network and returns it, and whether this call made it: a pod that is attached
// already, to the same namespace, is returned as it is. What is left of one whose interface or namespace is
// gone is taken away first. While another call works on the same pod, Attach waits for it until ctx ends.
func (m *Manager) Attach(ctx context.Context, spec Spec) (_ Pod, made bool, err error) {
	if err := spec.check(); err != nil {
		return Pod{}, false, err
	}
	ns, id, err := m.openNetns(&spec)
	if err != nil {
		return Pod{}, false, err
	}
	if ns != nil {
		defer ns.Close()
	}
	key := spec.Container + "/" + spec.IfName
	release, err := m.claim(ctx, key)
	if err != nil {
		return Pod{}, false, err
	}
	defer release()

	if old := m.get(key); old != nil {
		stays, err := m.stays(old, &spec, id)
		if err != nil {
			return Pod{}, false, err
		}
		if stays {
			return *old, false, nil
		}
		if err := m.end(old); err != nil {
			return Pod{}, false, err
		}
	}
	if err := m.awaitAddrs(ctx, spec.Addrs); err != nil {
		return Pod{}, false, err
	}
	p, err := m.reserve(key, spec, id)
	if err != nil {
		return Pod{}, false, err
	}
	if err := m.install(p, ns); err != nil {
		return Pod{}, false, errors.Join(err, m.end(p))
	}
	return *p, true, nil
}

// awaitAddrs waits until wanted addresses are free which pods have that are going.
func (m *Manager) awaitAddrs(ctx context.Context, want []netip.Addr) error {
	var going []string
	m.mu.Lock()
	for key, p := range m.pods {
		if p.ending && slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return slices.Contains(want, a) }) {
			going = append(going, key)
		}
	}
	m.mu.Unlock()
	for _, key := range going {
		if err := m.bury(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// openNetns opens the namespace of a container, once for all that follows: its path may lead elsewhere a
// moment later. That of the node is nobody's container. A runtime that moves the interface itself may make the
// namespace later; then there is no handle.
func (m *Manager) openNetns(s *Spec) (ns *nl.NS, id string, err error) {
	ns, err = nl.OpenNS(s.Netns)
	if err == nil {
		if id, err = ns.ID(); err != nil {
			ns.Close()
		}
	}
	switch {
	case err != nil && s.Moved:
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("network namespace of %s: %w", s.Name, err)
	case id == m.home:
		ns.Close()
		return nil, "", errOwnNetns{s.Name, s.Netns}
	}
	return ns, id, nil
}

// errOwnNetns refuses to make the node a pod of its own.
type errOwnNetns struct{ name, path string }

func (e errOwnNetns) Error() string {
	return fmt.Sprintf("pod %s: %s is the node's own network namespace, not a container's", e.name, e.path)
}

// Hint says what to do instead.
func (errOwnNetns) Hint() string {
	return "name a namespace that 'ip netns list' shows, or the pid of a process inside the container"
}

// stays says whether a pod that is there is the one that is asked for. One that is dead is not, nor one whose
// path leads to another namespace by now: whoever gave it knows that the old one is history.
func (m *Manager) stays(old *Pod, s *Spec, id string) (bool, error) {
	if !m.ready(old) || !m.alive(old) {
		return false, nil
	}
	same := old.NetnsID == id
	if old.NetnsID == "" || id == "" {
		same = old.Netns == s.Netns
	}
	if !same && (id == "" || old.NetnsID == "" || idOf(old.Netns) == old.NetnsID) {
		return false, fmt.Errorf("pod %s is attached already, to %s; detach it first", old.Name, old.Netns)
	}
	return same, nil
}

// idOf identifies the namespace behind a path, empty if there is none.
func idOf(path string) string {
	ns, err := nl.OpenNS(path)
	if err != nil {
		return ""
	}
	defer ns.Close()
	id, err := ns.ID()
	if err != nil {
		return ""
	}
	return id
}

// install makes a reserved pod real. Everything that judges its packets is in place before either end of its
// link is up. After a failure end takes away what there is.
func (m *Manager) install(p *Pod, ns *nl.NS) error {
	in, err := openInside(p, ns)
	if err != nil {
		return err
	}
	defer in.close()
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"record", func() error { return m.store.save(p) }},
		{"link", func() error { return makeLink(m.conn, in, p) }},
		{"guard", func() error { return m.forward.SetEndpoint(p.Endpoint()) }},
		{"labels", func() error { return m.config.Came(*p) }},
		{"inside", func() error { return in.setUp(p) }},
		{"host end", func() error { return setUpHostEnd(m.conn, m.sys, p) }},
		{"carrier", func() error { return awaitBoth(m.conn, in, p) }},
		{"ready", func() error { return m.setReady(p) }},
		{"publish", func() error { p.published = len(p.Publish) > 0; return m.publishFor(p) }},
	} {
		m.step("attach: " + s.name)
		if err := s.do(); err != nil {
			return fmt.Errorf("pod %s: %s: %w", p.Name, s.name, err)
		}
	}
	m.step("attach: done")
	return nil
}

// setReady completes the record, and the pod is one of the list.
func (m *Manager) setReady(p *Pod) error {
	ready := *p
	ready.Ready = true
	if err := m.store.save(&ready); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.Ready = true
	return nil
}

// publishFor tells the fast path the published ports when those of p are concerned.
func (m *Manager) publishFor(p *Pod) error {
	if !p.published {
		return nil
	}
	return m.publish()
}

// reserve chooses addresses and enters the pod in the list, not ready.
func (m *Manager) reserve(key string, spec Spec, id string) (*Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.clashLocked(key, spec); err != nil {
		return nil, err
	}
	p := &Pod{Spec: spec, Key: key, HostIf: hostIf(key), Created: m.now().UTC(), NetnsID: id}
	p.Addrs = slices.Clone(spec.Addrs)
	mac, hostMAC := macs(key)
	p.HostMAC = hostMAC
	if p.MAC == nil {
		p.MAC = mac
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

// assignLocked takes the wanted addresses from the pools and picks one of each family that was not asked for.
func (m *Manager) assignLocked(p *Pod) error {
	var taken []netip.Addr
	giveBack := func() {
		for _, a := range taken {
			m.giveLocked(a)
		}
	}
	for _, pool := range m.pools {
		is4 := pool.Gateway().Is4()
		i := slices.IndexFunc(p.Addrs, func(a netip.Addr) bool { return a.Is4() == is4 })
		switch {
		case i >= 0 && p.Extern && !pool.Prefix().Contains(p.Addrs[i]):
			// Somebody else's range; the gateway is still ours, reached over the link.
		case i >= 0 && m.held[p.Addrs[i]]:
			delete(m.held, p.Addrs[i])
			taken = append(taken, p.Addrs[i])
		case i >= 0:
			if err := pool.Take(p.Addrs[i]); err != nil {
				giveBack()
				return fmt.Errorf("pod %s: %w", p.Name, err)
			}
			taken = append(taken, p.Addrs[i])
		case p.Extern:
			continue
		default:
			a, err := pool.Pick()
			if err != nil {
				giveBack()
				return fmt.Errorf("pod %s: %w", p.Name, err)
			}
			p.Addrs, taken = append(p.Addrs, a), append(taken, a)
		}
		p.Gateway = append(p.Gateway, pool.Gateway())
	}
	for _, a := range p.Addrs {
		if !slices.ContainsFunc(p.Gateway, func(g netip.Addr) bool { return g.Is4() == a.Is4() }) {
			giveBack()
			return fmt.Errorf("pod %s: address %s has no pod range of its family on this node; add one to [pods] ranges", p.Name, a)
		}
	}
	if len(p.Addrs) == 0 {
		return fmt.Errorf("pod %s: no address to give; set [pods] ranges", p.Name)
	}
	return nil
}

func (m *Manager) giveLocked(a netip.Addr) {
	for _, pool := range m.pools {
		pool.Give(a)
	}
}

// clashLocked refuses what another pod has already: its name, an address, a published port, the name of its
// interface. One that goes has given up its name and ports.
func (m *Manager) clashLocked(key string, spec Spec) error {
	for _, o := range m.pods {
		if o.Key == key {
			continue
		}
		if o.HostIf == hostIf(key) {
			return fmt.Errorf("pod %s: the name of its interface, %s, is that of pod %s by chance; choose another container id",
				spec.Name, o.HostIf, o.Name)
		}
		for _, a := range spec.Addrs {
			if slices.Contains(o.Addrs, a) {
				return fmt.Errorf("pod %s: address %s is in use by pod %s", spec.Name, a, o.Name)
			}
		}
		if o.ending {
			continue
		}
		if o.Name == spec.Name && o.Container != spec.Container {
			return fmt.Errorf("pod name %s is taken by container %s; choose another name", spec.Name, o.Container)
		}
		for _, p := range spec.Publish {
			for _, q := range o.Publish {
				if p.Proto == q.Proto && p.HostPort == q.HostPort && hostsMeet(p.Host, q.Host) {
					return fmt.Errorf("pod %s: host port %d is published for pod %s already", spec.Name, p.HostPort, o.Name)
				}
			}
		}
	}
	return nil
}

// hostsMeet says whether one packet could be meant for both host addresses.
func hostsMeet(a, b netip.Addr) bool {
	if !a.IsValid() || !b.IsValid() || a == b {
		return true
	}
	return a.Is4() == b.Is4() && (a.IsUnspecified() || b.IsUnspecified())
}

// publish tells the fast path all published ports.
func (m *Manager) publish() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []firewall.Published
	for _, p := range m.pods {
		if p.Ready {
			all = append(all, p.Published()...)
		}
	}
	if err := m.forward.SetPublished(all); err != nil {
		return fmt.Errorf("published ports: %w", err)
	}
	return nil
}

func (m *Manager) get(key string) *Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[key]
}

func (m *Manager) ready(p *Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.Ready
}
