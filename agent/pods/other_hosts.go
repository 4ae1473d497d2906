package pods

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/pod"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store/cluster"
)

// SetOtherHostLabels enters addresses of pods of other hosts in tables of labels (true), or takes
// them out. It removes from changes what is done; after an error the call is to be repeated with
// the rest.
func (s *Service) SetOtherHostLabels(changes map[cluster.Label]bool) error {
	return s.labels.setOthers(changes)
}

// LivePods returns the pods of this host that may send.
func (s *Service) LivePods() []pod.Pod {
	s.labels.mu.Lock()
	defer s.labels.mu.Unlock()
	return slices.Collect(maps.Values(s.labels.own))
}

// ClearLabels has the engine's tables of labels empty that neither this host's pods nor others are
// in: what an earlier run left there was taken out since. Those of a name that is known stay.
func (s *Service) ClearLabels(tables []string) error { return s.labels.clear(tables) }

func (l *labels) clear(tables []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range tables {
		known := l.tables[name] != nil || l.others[name] != nil || l.recorded[name] != nil
		if known || !strings.Contains(name, "=") {
			continue
		}
		if err := l.engine.SetTable(name, nil); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
		l.others[name] = map[netip.Addr]struct{}{}
	}
	return nil
}

// PlaceLabels hands the engine those of the tables, which rules are about to name, for which it had
// no place as long as none did.
func (s *Service) PlaceLabels(tables []string) error { return s.labels.place(tables) }

func (l *labels) place(tables []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range tables {
		if !l.unplaced[name] {
			continue
		}
		if err := l.engine.SetTable(name, l.entriesLocked(name)); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
		delete(l.unplaced, name)
	}
	return nil
}

// setOthers changes single entries, unless that would be more than to hand the table over. Tables
// that no rule names and for which there is no place come with a rule that names them, or with a
// pod of this host that has the label.
func (l *labels) setOthers(changes map[cluster.Label]bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	byTable := map[string][]cluster.Label{}
	for c := range changes {
		byTable[c.Table] = append(byTable[c.Table], c)
	}
	tables := slices.Sorted(maps.Keys(byTable))
	list, err := l.engine.LabelsWithoutPlace(tables, ownLabels)
	if err != nil {
		return err
	}
	without := map[string]bool{}
	for _, table := range list {
		without[table] = true
	}
	var errs []error
	for _, table := range tables {
		of := byTable[table]
		if without[table] {
			l.rememberLocked(table, of, changes)
		} else if err := l.setOthersOfLocked(table, of, changes); err != nil {
			errs = append(errs, fmt.Errorf("table %s: %w", table, err))
			continue
		}
		for _, c := range of {
			delete(changes, c)
		}
		l.emptiedLocked(table)
	}
	if len(errs) > 1 {
		return fmt.Errorf("%w, and %d tables more", errs[0], len(errs)-1)
	}
	return errors.Join(errs...)
}

// rememberLocked changes entries of a table that the engine does not have.
func (l *labels) rememberLocked(table string, of []cluster.Label, changes map[cluster.Label]bool) {
	for _, c := range of {
		_ = l.setOtherLocked(c, changes[c], false) // without the engine nothing can fail
	}
	if l.unplaced[table] = true; len(l.others[table]) == 0 {
		delete(l.unplaced, table)
	}
}

// setOthersOfLocked changes entries of one table.
func (l *labels) setOthersOfLocked(table string, of []cluster.Label,
	changes map[cluster.Label]bool) error {
	whole := l.unplaced[table] || len(of) > len(l.others[table])+len(l.tables[table])
	for _, c := range of {
		err := l.setOtherLocked(c, changes[c], !whole)
		whole = whole || err != nil
	}
	if !whole {
		return nil
	}
	if err := l.engine.SetTable(table, l.entriesLocked(table)); err != nil {
		return err
	}
	delete(l.unplaced, table)
	return nil
}

// setOtherLocked changes one entry, in the engine too if that is wanted.
func (l *labels) setOtherLocked(c cluster.Label, is, engine bool) error {
	others := l.others[c.Table]
	if is {
		if others == nil {
			others = map[netip.Addr]struct{}{}
			l.others[c.Table] = others
		}
		others[c.Addr] = struct{}{}
	} else {
		delete(others, c.Addr)
	}
	if !engine || len(l.tables[c.Table][c.Addr]) > 0 {
		return nil
	}
	p := netip.PrefixFrom(c.Addr, c.Addr.BitLen())
	if is {
		return l.engine.AddTable(c.Table, rule.TableEntry{Prefix: p})
	}
	return l.engine.DeleteTable(c.Table, p)
}
