package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store/cluster"
)

// tableEngine is where tables are.
type tableEngine interface {
	SetTable(name string, entries []rule.TableEntry) error
	AddTable(name string, e rule.TableEntry) error
	DeleteTable(name string, p netip.Prefix) error
}

// SharedTables are the tables that all hosts of a cluster have. Versions of rules ask about them
// and do not define them. A host without a cluster has none.
type SharedTables struct {
	engine   tableEngine
	problems *problem.List

	mu     sync.Mutex            // its place in the lock order: agent/doc.go
	tables map[string]rule.Table // guarded by mu
	// guarded by mu; names of which the engine has no member of an earlier run any more
	cleared map[string]bool
	// guarded by mu; names of tables that the rules in force define. Such a table is theirs: what
	// the store has of it reaches the engine when they define it no longer.
	defined map[string]bool
}

// NewSharedTables returns no tables yet.
func NewSharedTables(e tableEngine, problems *problem.List) *SharedTables {
	return &SharedTables{engine: e, problems: problems, tables: map[string]rule.Table{},
		cleared: map[string]bool{}}
}

// Set changes members; nil takes one out. Single entries are changed, unless that would be more
// than to hand the table over. It removes from changes what is done; after an error the call is to
// be repeated with the rest.
func (t *SharedTables) Set(changes map[cluster.SharedMember]*uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	byTable := map[string][]cluster.SharedMember{}
	for m := range changes {
		byTable[m.Table] = append(byTable[m.Table], m)
	}
	var errs []error
	for name, members := range byTable {
		table := t.tables[name]
		if table == nil {
			table = rule.Table{}
			t.tables[name] = table
		}
		defined := t.defined[name]
		if defined {
			t.problems.Set(aboutShared(name), "table "+name+" is a shared one, and the rules in "+
				"force define it: the shared members have no effect", "rename one of the two")
		}
		whole := !defined && len(members) > len(table)
		for _, m := range members {
			if v := changes[m]; v != nil {
				table[m.Prefix] = *v
			} else {
				delete(table, m.Prefix)
			}
			if !whole && !defined {
				whole = t.change(name, m.Prefix, changes[m]) != nil
			}
		}
		if whole {
			if err := t.engine.SetTable(name, table.Entries()); err != nil {
				errs = append(errs, fmt.Errorf("table %s: %w", name, err))
				continue
			}
		}
		for _, m := range members {
			delete(changes, m)
		}
	}
	return errors.Join(errs...)
}

// Follow has the tables of the rules in force belong to them, and those that they had before to the
// store again. A shared member that came between the switch to these rules and this call is in the
// engine: the rules' own members take its place.
func (t *SharedTables) Follow(rules *rule.Ruleset) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.defined
	t.defined = map[string]bool{}
	var errs []error
	for name := range rules.Tables {
		t.defined[name] = true
		if !before[name] && t.tables[name] != nil {
			errs = append(errs, t.engine.SetTable(name, rules.Entries(name)))
		}
	}
	for name := range before {
		if !t.defined[name] && t.tables[name] != nil {
			t.problems.Solved(aboutShared(name))
			errs = append(errs, t.engine.SetTable(name, t.tables[name].Entries()))
		}
	}
	return errors.Join(errs...)
}

// Clear has the engine's tables empty that are neither shared nor of the rules: what an earlier run
// left there was taken out since.
func (t *SharedTables) Clear(names []string, ofRules map[string]rule.Table) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		_, defined := ofRules[name]
		if defined || t.tables[name] != nil || t.cleared[name] || strings.Contains(name, "=") {
			continue
		}
		if err := t.engine.SetTable(name, nil); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
		t.cleared[name] = true
	}
	return nil
}

// aboutShared is the subject of the problem that a table has two owners.
func aboutShared(name string) string { return "the shared table " + name }

func (t *SharedTables) change(name string, p netip.Prefix, value *uint32) error {
	if value == nil {
		return t.engine.DeleteTable(name, p)
	}
	return t.engine.AddTable(name, rule.TableEntry{Prefix: p, Value: *value})
}

// View shows the tables that are in the engine to f; a change that comes meanwhile waits.
func (t *SharedTables) View(f func(map[string]rule.Table)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown := maps.Clone(t.tables)
	maps.DeleteFunc(shown, func(name string, _ rule.Table) bool { return t.defined[name] })
	f(shown)
}

// copied returns a copy of the tables that are in the engine and that pick reports true for.
// Sorting the members of a large one takes long, and is done without the lock.
func (t *SharedTables) copied(pick func(name string) bool) map[string]rule.Table {
	copies := map[string]rule.Table{}
	t.View(func(tables map[string]rule.Table) {
		for name, table := range tables {
			if pick(name) {
				copies[name] = maps.Clone(table)
			}
		}
	})
	return copies
}

// All returns the tables as engines take them.
func (t *SharedTables) All() map[string][]rule.TableEntry {
	entries := map[string][]rule.TableEntry{}
	for name, table := range t.copied(func(string) bool { return true }) {
		entries[name] = table.Entries()
	}
	return entries
}

// Lookup returns the value of an address in a table that is in the engine.
func (t *SharedTables) Lookup(table string, a netip.Addr) (value uint32, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.defined[table] {
		return 0, false
	}
	return (&rule.Ruleset{Tables: t.tables}).Lookup(table, a)
}

// List returns the tables that q picks with all their members.
func (t *SharedTables) List(q api.TableQuery) (all []api.Table) {
	tables := t.copied(q.Picks)
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		a := api.Table{Name: name, Entries: []api.TableEntry{}}
		for _, e := range tables[name].Entries() {
			a.Entries = append(a.Entries, api.TableEntry{Prefix: e.Prefix.String(),
				Value: e.Value})
		}
		all = append(all, a)
	}
	return all
}
