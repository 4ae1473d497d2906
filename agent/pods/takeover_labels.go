package pods

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// leftEngine knows what an earlier agent has left.
type leftEngine interface {
	TakenOver() bool
	LabelsLeft(netip.Addr) ([]string, error)
}

// leftLabels finds the labels that the pods of an earlier run had, from its tables of labels in the
// kernel. It is used before the first rules replace these tables, for pods whose records cannot be
// used; the answers are kept.
type leftLabels struct {
	engine leftEngine
	known  map[string]map[string]string // by the addresses of a pod
}

// of returns the labels that a pod with these addresses had, nil when that is not clear. Each is
// one that all its addresses had, since a pod's labels are those of all its addresses.
func (l *leftLabels) of(addrs []netip.Addr) map[string]string {
	asked := slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
	if labels, ok := l.known[fmt.Sprint(asked)]; ok {
		return labels
	}
	if l.known == nil {
		l.known = map[string]map[string]string{}
	}
	labels := l.ask(asked)
	l.known[fmt.Sprint(asked)] = labels
	return labels
}

func (l *leftLabels) ask(addrs []netip.Addr) map[string]string {
	if !l.engine.TakenOver() {
		return nil
	}
	var common []string
	for i, a := range addrs {
		tables, err := l.engine.LabelsLeft(a)
		if err != nil {
			return nil
		}
		if i == 0 {
			common = tables
		}
		common = slices.DeleteFunc(common, func(t string) bool {
			return !slices.Contains(tables, t)
		})
	}
	labels := map[string]string{}
	for _, table := range common {
		key, value, _ := strings.Cut(table, "=")
		if _, twice := labels[key]; twice {
			return nil // no pod has two values of a label: it is not clear which is whose
		}
		labels[key] = value
	}
	return labels
}
