package pod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirnet/weir/internal/atomicfile"
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
	var changes []*relabelling
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
		after = append(after, next)
		if !maps.Equal(p.Labels, labels) {
			changes = append(changes, &relabelling{pod: p, before: *p, after: next})
		}
	}
	if err := m.relabel(changes); err != nil {
		return nil, err
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

// relabelling is a change of the labels of one pod.
type relabelling struct {
	pod           *Pod
	before, after Pod
	record        *atomicfile.Pending // of after
}

// relabel changes the labels of pods, of all or of none. The new records are on the disk before the
// tables change and take their places afterwards: that needs no space, and labels that the tables
// refuse are in no record. A process that ends before has not changed the labels, since the next
// one computes the tables from the records; the records of several pods take their places together
// (change).
func (m *Manager) relabel(all []*relabelling) (err error) {
	entered := 0 // in the tables
	var together *atomicfile.Pending
	defer func() {
		if err == nil {
			return
		}
		if together != nil {
			together.Discard()
			err = errors.Join(err, m.store.removeChange())
		}
		for i, r := range all {
			if r.record != nil {
				r.record.Discard()
			}
			if i < entered {
				err = errors.Join(err, m.config.OnLabel(r.after, r.before), m.store.save(&r.before))
			}
		}
	}()
	m.step("label: prepare")
	for _, r := range all {
		if r.record, err = m.store.prepare(&r.after); err != nil {
			return err
		}
	}
	if len(all) > 1 {
		if together, err = m.store.prepareChange(all); err != nil {
			return err
		}
	}
	m.step("label: tables")
	for _, r := range all {
		if err := m.config.OnLabel(r.before, r.after); err != nil {
			return fmt.Errorf("labels of pod %s: %w", r.pod.Name, err)
		}
		entered++
	}
	m.step("label: record")
	if together != nil {
		if err := together.Commit(); err != nil {
			return fmt.Errorf("pod records: %w", err)
		}
	}
	for _, r := range all {
		m.step("label: replace")
		if err := r.record.Commit(); err != nil {
			return fmt.Errorf("pod record of %s: %w", r.pod.Name, err)
		}
	}
	m.step("label: replaced")
	if together != nil {
		if err := m.store.removeChange(); err != nil {
			m.config.OnRecordError(err) // its files are in their places: it says nothing any more
		}
	}
	m.step("label: done")
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range all {
		r.pod.Labels = r.after.Labels // a new map: those who have the one before may still read it
	}
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
