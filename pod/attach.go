package pod

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/nl"
)

// Attach gives a container its network and returns it, and whether this call made it: a pod that is
// attached already, to the same namespace, is returned as it is. What is left of a pod whose
// interface or namespace is gone is removed first. While another call works on the same pod, Attach
// waits for it until ctx ends.
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
	key := keyOf(spec.Container, spec.IfName)
	release, err := m.claim(ctx, key)
	if err != nil {
		return Pod{}, false, err
	}
	defer release()

	if old := m.get(key); old != nil {
		same, err := m.isSame(old, &spec, id)
		if err != nil {
			return Pod{}, false, err
		}
		if same {
			return *old, false, nil
		}
		if err := m.end(old); err != nil {
			return Pod{}, false, err
		}
	}
	if err := errors.Join(m.awaitDying(ctx, key, &spec),
		m.awaitAddrs(ctx, spec.Addrs)); err != nil {
		return Pod{}, false, err
	}
	p, err := m.allocate(key, spec, id)
	if err != nil {
		return Pod{}, false, err
	}
	err = m.install(p, ns)
	if err == nil && !m.alive(p) {
		// The kernel announced that before the pod was in the list.
		err = fmt.Errorf("pod %s: its interface %s is gone; something removed it during the attach",
			p.Name, p.IfName)
	}
	if err != nil {
		return Pod{}, false, errors.Join(err, m.end(p))
	}
	return *p, true, nil
}

// awaitAddrs waits until wanted addresses are free that belong to pods which are being removed.
func (m *Manager) awaitAddrs(ctx context.Context, want []netip.Addr) error {
	var going []string
	m.mu.Lock()
	for key, p := range m.pods {
		if p.ending && slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool {
			return slices.Contains(want, a)
		}) {
			going = append(going, key)
		}
	}
	m.mu.Unlock()
	for _, key := range going {
		if err := m.endStale(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// openNetns opens the namespace of a container, once for all later steps: its path may lead
// elsewhere a moment later. The node's own namespace is refused. A runtime that moves the interface
// itself may make the namespace later; then ns is nil.
func (m *Manager) openNetns(s *Spec) (ns *nl.NS, id string, err error) {
	ns, err = nl.OpenNS(s.Netns)
	if err == nil {
		if id, err = ns.ID(); err != nil {
			ns.Close()
		}
	}
	switch {
	case err != nil && s.RuntimeMovesInterface:
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("network namespace of %s: %w", s.Name, err)
	case id == m.home:
		ns.Close()
		return nil, "", errOwnNetns{s.Name, s.Netns}
	}
	return ns, id, nil
}

// errOwnNetns refuses the node's own namespace as a pod.
type errOwnNetns struct{ name, path string }

func (e errOwnNetns) Error() string {
	return fmt.Sprintf("pod %s: %s is the node's own network namespace, not a container's", e.name,
		e.path)
}

// Hint returns what to do instead.
func (errOwnNetns) Hint() string {
	return "name a namespace that 'ip netns list' shows, or the pid of a process inside the " +
		"container"
}

// isSame reports whether an existing pod is the requested one. A dead pod is not, nor one whose
// path leads to another namespace by now: then the old namespace is gone.
func (m *Manager) isSame(old *Pod, s *Spec, id string) (bool, error) {
	if !m.ready(old) || !m.alive(old) {
		return false, nil
	}
	same := old.NetnsID == id
	if old.NetnsID == "" || id == "" {
		same = old.Netns == s.Netns
	}
	if !same && (id == "" || old.NetnsID == "" || namespaceID(old.Netns) == old.NetnsID) {
		return false, fmt.Errorf("pod %s is attached already, to %s; detach it first", old.Name,
			old.Netns)
	}
	return same, nil
}

// namespaceID identifies the namespace behind a path, empty if there is none.
func namespaceID(path string) string {
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

// install creates the network of an allocated pod. Everything that filters its packets is in place
// before either end of its link is up. After a failure, end removes what there is.
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
		{"link", func() error { return makeLink(m.conn, in, p, m.config.Link) }},
		{"guard", func() error { return m.forward.SetEndpoint(p.Endpoint()) }},
		{"labels", func() error { return m.config.OnAttach(*p) }},
		{"inside", func() error { return in.setUp(p) }},
		{"host end", func() error { return setUpHostEnd(m.conn, m.sys, p, m.gateways()) }},
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

// setReady completes the record and adds the pod to the list.
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
