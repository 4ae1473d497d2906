package pods

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/weirnet/weir/pod"
	"github.com/weirnet/weir/rule"
)

// labelEngine is where the tables of labels are.
type labelEngine interface {
	SetTable(name string, entries []rule.TableEntry) error
	AddTable(name string, e rule.TableEntry) error
	DeleteTable(name string, p netip.Prefix) error
	// LabelsWithoutPlace returns those of the tables that have no place, if as many others as
	// reserve are to have one after them.
	LabelsWithoutPlace(tables []string, reserve int) ([]string, error)
}

// ownLabels is how many tables of labels that no rule names stay free for pods of this host: labels
// of other hosts must not keep its pods from starting.
const ownLabels = 256

// labels are the tables of labels, KEY=VALUE each: the addresses of all pods with that label.
// They follow from the pods that came and have not gone, however often either is reported.
type labels struct {
	engine labelEngine

	mu sync.Mutex // its place in the lock order: agent/doc.go
	// guarded by mu; the engine has the tables as they are here
	began bool
	// guarded by mu; table -> address -> keys of its pods
	tables map[string]map[netip.Addr]map[string]bool
	// guarded by mu; tables of the labels that recorded pods had, which count until began
	recorded map[string][]rule.TableEntry
	// guarded by mu; table -> addresses of pods of other hosts
	others map[string]map[netip.Addr]struct{}
	// guarded by mu; tables with others for which the engine has no place
	unplaced map[string]bool
	// guarded by mu; pods of this host that came and have not gone, by key
	own map[string]pod.Pod
	// guarded by mu; tables of labels that a pod lost and that the engine did not take it out of,
	// by key
	strays map[string][]string
	// guarded by mu; how many tables have lost their last member since empty ones were forgotten
	emptied int
	changed func() // called after a change of own, with mu held
}

// maxEmptied is how many tables may lose their last member before the empty ones are forgotten. A
// pod that comes again to one that is not costs the engine one entry, and not a whole table.
const maxEmptied = 64

func newLabels(e labelEngine, changed func()) labels {
	return labels{engine: e, tables: map[string]map[netip.Addr]map[string]bool{},
		others: map[string]map[netip.Addr]struct{}{}, unplaced: map[string]bool{},
		own: map[string]pod.Pod{}, strays: map[string][]string{}, changed: changed}
}

// record hands the engine the tables of the labels that recorded pods had.
func (l *labels) record(tables map[string][]rule.TableEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recorded = tables
	for table := range tables {
		if err := l.engine.SetTable(table, l.entriesLocked(table)); err != nil {
			return err
		}
	}
	return nil
}

// attached enters a pod's addresses in the tables of its labels. When one cannot be, detached is to
// follow.
func (l *labels) attached(p pod.Pod) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enterLocked(p, tablesOf(p.Labels)); err != nil {
		return err
	}
	l.own[p.Key] = p
	l.changed()
	return nil
}

// tablesOf returns the names of the tables of labels.
func tablesOf(labels map[string]string) (tables []string) {
	for key, value := range labels {
		tables = append(tables, key+"="+value)
	}
	return tables
}

// enterLocked enters a pod's addresses in tables.
func (l *labels) enterLocked(p pod.Pod, tables []string) error {
	for _, table := range tables {
		if l.tables[table] == nil {
			// What the engine has under this name belongs to no living pod.
			if err := l.setLocked(table); err != nil {
				return err
			}
			l.tables[table] = map[netip.Addr]map[string]bool{}
		}
		for _, a := range p.Addrs {
			if err := l.addLocked(table, a, p.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *labels) addLocked(table string, a netip.Addr, key string) error {
	members := l.tables[table]
	if members[a] == nil {
		members[a] = map[string]bool{}
	}
	members[a][key] = true
	if !l.began {
		return nil
	}
	if err := l.engine.AddTable(table,
		rule.TableEntry{Prefix: netip.PrefixFrom(a, a.BitLen())}); err != nil {
		return fmt.Errorf("table %s: %w", table, err)
	}
	return nil
}

// detached takes a pod's addresses out. After an error the pod may still be in some tables, and
// detached is to be called again. One that went before this run began may still be in the engine's
// tables: these are handed over with the others. (A pod's record outlives its labels, so that each
// is heard of.)
func (l *labels) detached(p pod.Pod) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.leaveLocked(p, append(tablesOf(p.Labels), l.strays[p.Key]...)); err != nil {
		return err
	}
	delete(l.strays, p.Key)
	delete(l.own, p.Key)
	l.changed()
	return nil
}

// leaveLocked takes a pod's addresses out of tables.
func (l *labels) leaveLocked(p pod.Pod, tables []string) error {
	for _, table := range tables {
		if !l.began && l.tables[table] == nil {
			l.tables[table] = map[netip.Addr]map[string]bool{}
		}
		for _, a := range p.Addrs {
			if err := l.removeLocked(table, a, p.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *labels) removeLocked(table string, a netip.Addr, key string) error {
	pods, there := l.tables[table][a]
	if !there {
		return nil
	}
	delete(pods, key)
	if len(pods) > 0 {
		return nil
	}
	_, other := l.others[table][a]
	if l.began && !other && l.engine.DeleteTable(table, netip.PrefixFrom(a, a.BitLen())) != nil {
		// It was not in the table, or the engine is in trouble: then the whole table says what is
		// right.
		if err := l.setLocked(table); err != nil {
			return err
		}
	}
	delete(l.tables[table], a)
	l.emptiedLocked(table)
	return nil
}

// emptiedLocked notes that a table may have lost its last member, and now and then forgets the
// empty ones: runtimes may give each pod a label of its own. The engine has them empty, too, and
// drops those that no rule names. Before the beginning those of own pods are still to be handed
// over.
func (l *labels) emptiedLocked(table string) {
	if len(l.tables[table])+len(l.others[table]) > 0 {
		return
	}
	if l.emptied++; l.emptied < maxEmptied {
		return
	}
	l.emptied = 0
	maps.DeleteFunc(l.others, func(_ string, members map[netip.Addr]struct{}) bool {
		return len(members) == 0
	})
	if l.began {
		maps.DeleteFunc(l.tables, func(_ string, members map[netip.Addr]map[string]bool) bool {
			return len(members) == 0
		})
	}
}

// setLocked hands a whole table to the engine.
func (l *labels) setLocked(table string) error {
	if !l.began {
		return nil
	}
	if err := l.engine.SetTable(table, l.entriesLocked(table)); err != nil {
		return fmt.Errorf("table %s: %w", table, err)
	}
	delete(l.unplaced, table)
	return nil
}

// begin hands all tables to the engine, each once and whole, and from now on each change.
func (l *labels) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = true
	for table := range l.tables {
		if err := l.setLocked(table); err != nil {
			return err
		}
	}
	return nil
}

// all returns the tables of labels, each whole: of living pods, and empty ones of pods that went
// and that are not forgotten yet. Sorting the members takes long, and is done without the lock: no
// pod waits for a reader.
func (l *labels) all() map[string][]rule.TableEntry {
	l.mu.Lock()
	addrs := l.addrsLocked()
	l.mu.Unlock()
	return sorted(addrs)
}

// addrsLocked returns the addresses of all tables, as addrsOfLocked does.
func (l *labels) addrsLocked() map[string][]netip.Addr {
	tables := map[string][]netip.Addr{}
	for name := range l.tables {
		tables[name] = l.addrsOfLocked(name)
	}
	for name := range l.others {
		if tables[name] == nil {
			tables[name] = l.addrsOfLocked(name)
		}
	}
	return tables
}

// sorted returns tables as engines take them.
func sorted(addrs map[string][]netip.Addr) map[string][]rule.TableEntry {
	tables := make(map[string][]rule.TableEntry, len(addrs))
	for name, all := range addrs {
		tables[name] = entriesOf(all)
	}
	return tables
}

// has reports whether a pod with an address is in the table of a label.
func (l *labels) has(table string, a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, other := l.others[table][a]
	return other || len(l.tables[table][a]) > 0
}

// HasLabel reports whether a pod with an address is in the table of a label.
func (s *Service) HasLabel(table string, a netip.Addr) bool { return s.labels.has(table, a) }

// Labels returns the tables of labels.
func (s *Service) Labels() map[string][]rule.TableEntry { return s.labels.all() }

// ViewLabels shows the tables of labels to f; a pod that comes meanwhile waits.
func (s *Service) ViewLabels(f func(map[string][]rule.TableEntry)) {
	s.labels.mu.Lock()
	defer s.labels.mu.Unlock()
	f(sorted(s.labels.addrsLocked()))
}

// entriesLocked are the addresses of a table, in order, as engines take them.
func (l *labels) entriesLocked(table string) []rule.TableEntry {
	return entriesOf(l.addrsOfLocked(table))
}

// addrsOfLocked are the addresses of a table, in no order; some may be there twice.
func (l *labels) addrsOfLocked(table string) []netip.Addr {
	members, others := l.tables[table], l.others[table]
	addrs := make([]netip.Addr, 0, len(members)+len(others))
	for a, pods := range members {
		if _, other := others[a]; len(pods) > 0 && !other {
			addrs = append(addrs, a)
		}
	}
	addrs = slices.AppendSeq(addrs, maps.Keys(others))
	for _, e := range l.recorded[table] {
		if !l.began {
			addrs = append(addrs, e.Prefix.Addr())
		}
	}
	return addrs
}

// entriesOf returns addresses in order, each once, as engines take them.
func entriesOf(addrs []netip.Addr) []rule.TableEntry {
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	all := make([]rule.TableEntry, len(addrs))
	for i, a := range addrs {
		all[i] = rule.TableEntry{Prefix: netip.PrefixFrom(a, a.BitLen())}
	}
	return all
}
