package pod

import (
	"context"
	"errors"
	"fmt"
)

// Detach takes the network of a container away. A pod that does not exist is no error: whoever asks
// wants it gone. While another call works on the pod, Detach waits for it until ctx ends.
func (m *Manager) Detach(ctx context.Context, container, ifName string) error {
	p, release, err := m.claimPod(ctx, container, ifName)
	if err != nil {
		return err
	}
	defer release()
	if p == nil {
		return nil
	}
	return m.end(p)
}

// Leave is Detach for somebody in a hurry: when it returns, the pod's name and published ports are
// free, and its interface, which the kernel takes some tens of milliseconds to remove, goes soon
// after, guarded until then. Its addresses are given to nobody before that. If that fails,
// Config.Failed is told, and the next Sweep tries again.
func (m *Manager) DetachAsync(ctx context.Context, container, ifName string) error {
	p, release, err := m.claimPod(ctx, container, ifName)
	if err != nil {
		return err
	}
	if p == nil {
		release()
		return nil
	}
	if !m.unpublish(p) {
		defer release()
		return m.dismantle(p)
	}
	m.detaching.Go(func() {
		defer release()
		if err := m.dismantle(p); err != nil {
			m.config.OnError(err)
		}
	})
	return nil
}

// seize claims a pod, nil if there is none.
func (m *Manager) claimPod(ctx context.Context, container, ifName string) (p *Pod, release func(),
	err error) {
	if ifName == "" {
		ifName = "eth0"
	}
	key := container + "/" + ifName
	if release, err = m.claim(ctx, key); err != nil {
		return nil, nil, err
	}
	return m.get(key), release, nil
}

// end takes away a pod, or what there is of one, whatever its state. What fails can be tried again;
// until nothing does, the pod keeps its addresses. Its key must be claimed.
func (m *Manager) end(p *Pod) error {
	m.unpublish(p)
	return m.dismantle(p)
}

// withdraw gives up a pod's name and ports. It reports whether the rest may be done later: whether the
// record tells the next process that the pod is to go, and the fast path knows nothing of its ports
// any more.
func (m *Manager) unpublish(p *Pod) bool {
	m.mu.Lock()
	was := p.Ready
	p.Ready, p.ending = false, true
	gone := *p
	m.mu.Unlock()
	m.step("detach: record")
	noted := true
	if was {
		noted = m.store.save(&gone) == nil
	}
	m.step("detach: publish")
	p.published = m.publishFor(p) != nil
	return noted && !p.published
}

// dismantle removes the interface of a pod, with it its routes; then all that guarded it until its
// last packet, its record, and, when nothing in the node has them any more, gives back its
// addresses.
func (m *Manager) dismantle(p *Pod) error {
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"link", func() error { removeRules(p); return removeHostEnd(m.conn, p) }},
		{"guard", func() error { return m.forward.DeleteEndpoint(p.Index) }},
		{"labels", func() error { return m.config.OnDetach(*p) }},
		{"published ports", func() error { return m.publishFor(p) }},
		{"remove", func() error { return m.store.remove(p.Key) }},
	} {
		m.step("detach: " + s.name)
		if err := s.do(); err != nil {
			return fmt.Errorf("detach pod %s: %s: %w", p.Name, s.name, err)
		}
	}
	m.step("detach: done")
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, p.Key)
	for _, a := range p.Addrs {
		m.releaseLocked(a)
	}
	return nil
}

// Sweep takes away the pods whose interface is gone, because their namespace died or somebody
// removed it, and what is left of those that could not be taken away before. It waits for calls
// that work on them until ctx ends.
func (m *Manager) Sweep(ctx context.Context) error {
	m.mu.Lock()
	keys := make([]string, 0, len(m.pods))
	for key := range m.pods {
		keys = append(keys, key)
	}
	m.mu.Unlock()
	var errs []error
	for _, key := range keys {
		if p := m.get(key); p != nil && (!m.ready(p) || !m.alive(p)) {
			errs = append(errs, m.endStale(ctx, key))
		}
	}
	return errors.Join(errs...)
}

// bury ends a pod that is dead or half gone, if it still is when the call that works on it
// has ended.
func (m *Manager) endStale(ctx context.Context, key string) error {
	release, err := m.claim(ctx, key)
	if err != nil {
		return err
	}
	defer release()
	p := m.get(key)
	if p == nil || m.ready(p) && m.alive(p) {
		return nil
	}
	return m.end(p)
}
