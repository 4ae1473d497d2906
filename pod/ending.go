package pod

import (
	"context"
	"fmt"
	"time"
)

// dyingWait is how long a wanted name may belong to a pod whose container has ended. The kernel
// removes the interface with the namespace, in a work queue: some hundred milliseconds when many
// containers end at once.
const dyingWait = 5 * time.Second

// awaitDying ends the pods that hold the name, an address or a port that a new one wants and whose
// container has ended without a detach. Its runtime was killed then, or no agent ran. It waits for
// their interfaces to go. A pod whose namespace is where it was keeps its name, and so does one
// that only lost the path to it: its interface stays.
func (m *Manager) awaitDying(ctx context.Context, key string, spec *Spec) error {
	for end := time.Now().Add(dyingWait); ; {
		p := m.holder(key, spec)
		switch {
		case p == nil || !lostNamespace(p) || time.Now().After(end):
			return nil
		case !m.ready(p) || !m.alive(p): // not ready: another call attaches it and has to end
			if err := m.endStale(ctx, p.Key); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pod %s: its name, address or port is that of %s, which ends: %w",
				spec.Name, p.Name, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// holder returns a pod that holds the name or a port that another one wants, nil if none does.
func (m *Manager) holder(key string, spec *Spec) *Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		if p.Key != key && !p.ending && p.holds(spec) {
			return p
		}
	}
	return nil
}

// lostNamespace reports whether a pod's path leads to no namespace or to another one than its own.
// A runtime that moves the interface itself may make the namespace later.
func lostNamespace(p *Pod) bool {
	if p.RuntimeMovesInterface {
		return false
	}
	id := namespaceID(p.Netns)
	return id == "" || p.NetnsID != "" && id != p.NetnsID
}
