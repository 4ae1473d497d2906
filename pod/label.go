package pod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Label changes the labels of a container, found by its id or its pod's name: those of all its
// interfaces, or of the named one. All are changed or none is, and the pods are returned as they
// are then. A key that is to be removed need not be there. What the network's configuration says
// stays (Spec.Fixed). While another call works on one of the pods, Label waits for it until ctx
// ends.
func (m *Manager) Label(ctx context.Context, name, ifName string, set map[string]string,
	remove []string) (after []Pod, err error) {
	found, err := m.Find(name, ifName)
	if err != nil {
		return nil, err
	}
	pods, release, err := m.claimAll(ctx, found.Container, ifName)
	if err != nil {
		return nil, err
	}
	defer release()
	var before []Pod
	for _, p := range pods {
		labels := maps.Clone(p.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, set)
		for _, key := range remove {
			delete(labels, key)
		}
		next := *p
		next.Labels = labels
		if err := errors.Join(p.checkFixed(labels), next.checkLabels()); err != nil {
			return nil, err
		}
		before, after = append(before, *p), append(after, next)
	}
	for i := range after {
		if err := m.relabel(pods[i], before[i], after[i]); err != nil {
			for j := range i {
				err = errors.Join(err, m.relabel(pods[j], after[j], before[j]))
			}
			return nil, err
		}
	}
	return after, nil
}

// claimAll claims the pods of a container that are ready, those of all its interfaces or of the
// named one, in the order of their keys.
func (m *Manager) claimAll(ctx context.Context, container, ifName string) (pods []*Pod,
	release func(), err error) {
	var releases []func()
	release = func() {
		for _, r := range releases {
			r()
		}
	}
	var keys []string
	for _, p := range m.List() {
		if p.Container == container && (ifName == "" || p.IfName == ifName) {
			keys = append(keys, p.Key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		r, err := m.claim(ctx, key)
		if err != nil {
			release()
			return nil, nil, err
		}
		releases = append(releases, r)
		if p := m.get(key); p != nil && m.ready(p) {
			pods = append(pods, p)
		}
	}
	if len(pods) == 0 { // they went meanwhile
		release()
		return nil, nil, fmt.Errorf("%w: %s", ErrNotFound, container)
	}
	return pods, release, nil
}

// relabel changes the labels of one pod. The record comes first: a process that ends behind it has
// changed them, since the next one computes the tables from the records. After an error the labels
// are those from before.
func (m *Manager) relabel(p *Pod, before, after Pod) error {
	if maps.Equal(before.Labels, after.Labels) {
		return nil
	}
	m.step("label: record")
	if err := m.store.save(&after); err != nil {
		return err
	}
	m.step("label: tables")
	if err := m.config.OnLabel(before, after); err != nil {
		return fmt.Errorf("labels of pod %s: %w", p.Name, errors.Join(err, m.store.save(&before)))
	}
	m.step("label: done")
	m.mu.Lock()
	defer m.mu.Unlock()
	p.Labels = after.Labels // a map of its own: those who have the one before may still read it
	return nil
}

// checkFixed refuses labels that differ from what the network's configuration says.
func (p *Pod) checkFixed(labels map[string]string) error {
	for _, key := range p.Fixed {
		value, there := labels[key]
		if was, had := p.Labels[key]; had && (!there || value != was) {
			return errFixed{p.Name, key, was, cmp.Or(p.Network, "its network")}
		}
	}
	return nil
}

// errFixed refuses to change a label that every pod of a network has.
type errFixed struct{ pod, key, value, network string }

func (e errFixed) Error() string {
	return fmt.Sprintf("pod %s: the label %s=%s is of the configuration of %s", e.pod, e.key,
		e.value, e.network)
}

// Hint returns where it is changed.
func (e errFixed) Hint() string {
	return "change it there, for the containers that start from then on; other labels of this " +
		"container can be changed here"
}
