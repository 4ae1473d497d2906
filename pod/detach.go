package pod

import (
	"context"
	"errors"
	"fmt"
)

// Detach removes the network of a container. It is idempotent: an unknown pod is not an error.
// While another call works on the pod, Detach waits for it until ctx ends.
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

// DetachAsync is Detach without the wait for the interface: when it returns, the pod's name and
// published ports are free. The interface, which the kernel takes some tens of milliseconds to
// remove, is removed afterwards; until then it stays filtered and no other pod gets its addresses.
// If that fails, the next Sweep tries again.
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
		_ = m.dismantle(p) // reported
	})
	return nil
}

// claimPod claims a pod; p is nil if there is none.
func (m *Manager) claimPod(ctx context.Context, container, ifName string) (p *Pod, release func(),
	err error) {
	key := keyOf(container, ifName)
	if release, err = m.claim(ctx, key); err != nil {
		return nil, nil, err
	}
	return m.get(key), release, nil
}

// end removes a pod, or what there is of one, whatever its state. A failed call is reported to
// Config.OnError and can be repeated; the pod keeps its addresses until one succeeds. Its key must
// be claimed.
func (m *Manager) end(p *Pod) error {
	m.unpublish(p)
	return m.dismantle(p)
}

// unpublish frees a pod's name and ports. It reports whether the rest may be done later: whether
// the record makes the next process remove the pod, and the fast path has none of its ports any
// more.
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

// dismantle removes the interface of a pod and with it its routes; then its labels, its endpoint in
// the fast path, its ports and record. Until the labels are gone the endpoint refuses the pod's
// addresses as sources of others, whom the labels might let in. It releases the addresses last,
// when nothing in the node uses them any more. Config.OnError gets each failure: a runtime may not
// ask again, and others cannot, since the pod is in no list any more.
func (m *Manager) dismantle(p *Pod) error {
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"link", func() error { removeRules(p); return removeHostEnd(m.conn, p) }},
		{"labels", func() error { return m.config.OnDetach(*p) }},
		{"guard", func() error { return m.forward.DeleteEndpoint(p.Index) }},
		{"published ports", func() error { return m.publishFor(p) }},
		{"remove", func() error { return m.store.remove(p.Key) }},
	} {
		m.step("detach: " + s.name)
		if err := s.do(); err != nil {
			err = fmt.Errorf("detach pod %s: %s: %w", p.Name, s.name, err)
			m.config.OnError(err)
			return err
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

// Sweep removes the pods whose interface is gone, because their namespace ended or another program
// removed it, and what is left of those that could not be removed before. It waits for calls that
// work on them until ctx ends.
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

// endStale ends a pod that is dead or half removed, if it still is when the call that works on it
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
