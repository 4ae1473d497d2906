package pods

import (
	"errors"
	"slices"

	"github.com/weirnet/weir/pod"
)

// relabelled moves a pod from the tables of the labels that it loses to those of the labels that it
// gets. It enters the new ones first: a packet meanwhile meets both. Where rules ask for what is in
// a table, the first rule that matches then is one that matches before or after the change. So no
// packet gets a verdict that neither gives. After an error the pod is in the tables from before.
func (l *labels) relabelled(before, after pod.Pod) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, now := tablesOf(before.Labels), tablesOf(after.Labels)
	gets, loses := without(now, old), without(old, now)
	err := l.enterLocked(after, gets)
	if err == nil {
		err = l.leaveLocked(after, loses)
	}
	if err != nil {
		return errors.Join(err, l.enterLocked(before, loses), l.expelLocked(before, gets, old))
	}
	l.own[after.Key] = after
	l.changed()
	_ = l.expelLocked(after, nil, now) // of an earlier change, which has reported it
	return nil
}

// expelLocked takes a pod out of tables of labels that it does not have, and out of those that it
// was to leave before. What fails is tried again at its next change and when it goes: its address
// must not take a label to the next pod.
func (l *labels) expelLocked(p pod.Pod, tables, has []string) error {
	tables = without(append(slices.Clone(l.strays[p.Key]), tables...), has)
	delete(l.strays, p.Key)
	err := l.leaveLocked(p, tables)
	if err != nil {
		l.strays[p.Key] = tables
	}
	return err
}

// without returns what of a is not in b.
func without(a, b []string) (rest []string) {
	for _, one := range a {
		if !slices.Contains(b, one) {
			rest = append(rest, one)
		}
	}
	return rest
}
