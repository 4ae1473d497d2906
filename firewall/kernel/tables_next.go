package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// nextTables are the tables that come with a Load: complete, but under ids that no packet asks
// about until the rules switch. Those in force stay beside them until then, so a table that a Load
// replaces takes its memory twice for that long. Tables that a Load does not change keep their map.
type nextTables struct {
	first  bool // nothing of this engine is in force yet
	names  []string
	ids    []uint32
	maps   []*ebpf.Map
	before map[string]uint32 // ids that some of the names have in force
	old    []uint32          // ids that end with the switch
}

// id returns the id of a table that comes with the Load.
func (t *nextTables) id(name string) (uint32, bool) {
	if i := slices.Index(t.names, name); i >= 0 {
		return t.ids[i], true
	}
	return 0, false
}

// fill makes the tables and writes their members. The engine need not be locked: it takes a second
// for a million.
func (t *nextTables) fill(members map[string][]rule.TableEntry) error {
	for _, name := range t.names {
		m, err := newTable()
		if err != nil {
			return err
		}
		t.maps = append(t.maps, m)
		if err := fillTable(m, last(members[name])); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	return nil
}

func (t *nextTables) close() error {
	var errs []error
	for _, m := range t.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// last leaves of several entries of one prefix the last.
func last(entries []rule.TableEntry) []rule.TableEntry {
	at, out := make(map[weirTableKey]int, len(entries)), entries[:0:0]
	for _, t := range entries {
		k := trieKey(t.Prefix)
		if i, known := at[k]; known {
			out[i] = t
			continue
		}
		at[k] = len(out)
		out = append(out, t)
	}
	return out
}

// firstTablesLocked makes the tables of a Program and those that were set before it. Labels have no
// limit here. Those of pods that are there were counted when they came, some while rules named
// them. However many they are, the first rules have to come into force.
func (e *Engine) firstTablesLocked(p *program.Program) (*nextTables, error) {
	t := &nextTables{first: true}
	unnamed := 0
	for name, members := range e.staged {
		if slices.Contains(p.Tables, name) || len(members) == 0 {
			continue
		}
		if !isLabel(name) {
			unnamed++
		}
		if unnamed > maxTables {
			return t, errManyTables{name}
		}
		t.names = append(t.names, name)
	}
	t.names = append(t.names, p.Tables...)
	for id := range e.nameIDs.used[nameTable] {
		t.old = append(t.old, id)
	}
	if err := t.fill(e.staged); err != nil {
		return t, err
	}
	return t, e.reserveLocked(t)
}

// laterTables makes those tables that a later Load changes and that are needed after it.
func laterTables(p *program.Program, members map[string][]rule.TableEntry) (*nextTables,
	error) {
	t := &nextTables{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if len(members[name]) > 0 || slices.Contains(p.Tables, name) {
			t.names = append(t.names, name)
		}
	}
	return t, t.fill(members)
}

// enterLocked adds the tables that the rules of a later Load are the first to name, gives all of
// them ids, and records which end with it.
func (e *Engine) enterLocked(t *nextTables, p *program.Program,
	members map[string][]rule.TableEntry) error {
	for _, name := range p.Tables {
		if e.tables[name] != nil || slices.Contains(t.names, name) {
			continue
		}
		m, err := newTable()
		if err != nil {
			return err
		}
		t.names, t.maps = append(t.names, name), append(t.maps, m)
	}
	for name := range members {
		if id, there := e.nameIDs.ids[nameTable][name]; there {
			t.old = append(t.old, id)
		}
	}
	if err := e.checkSpaceLocked(t, p); err != nil {
		return err
	}
	return e.reserveLocked(t)
}

// checkSpaceLocked refuses tables too many that the rules to come do not name.
func (e *Engine) checkSpaceLocked(t *nextTables, p *program.Program) error {
	for _, name := range t.names {
		if e.tables[name] != nil || slices.Contains(p.Tables, name) {
			continue
		}
		n := 0
		for _, other := range t.names {
			if e.tables[other] == nil && isLabel(other) == isLabel(name) &&
				!slices.Contains(p.Tables, other) {
				n++
			}
		}
		if e.countLocked(name)+n > maxTables {
			if err := e.dropIdleLocked(); err != nil {
				return err
			}
		}
		if e.countLocked(name)+n > maxTables {
			return errManyTables{name}
		}
		return nil
	}
	return nil
}

func (e *Engine) reserveLocked(t *nextTables) (err error) {
	t.before = map[string]uint32{}
	for _, name := range t.names {
		if id, there := e.nameIDs.ids[nameTable][name]; there {
			t.before[name] = id
		}
	}
	t.ids, err = e.nameIDs.reserve(nameTable, len(t.names))
	return err
}

// placeLocked puts the tables where the rules to come will ask for them.
func (e *Engine) placeLocked(t *nextTables) error {
	if err := e.putTables(t.ids, t.maps); err != nil {
		return err
	}
	for i, name := range t.names {
		if err := e.nameIDs.put(nameTable, t.ids[i], name); err != nil {
			return err
		}
	}
	return nil
}

// undoTablesLocked forgets tables that did not come into force.
func (e *Engine) undoTablesLocked(t *nextTables) error {
	errs := []error{t.close()}
	for i, id := range t.ids {
		if err := e.objects.Tables.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("remove table %s, which did not come into force: %w",
				t.names[i], err))
		}
		if _, put := e.nameIDs.used[nameTable][id]; put {
			errs = append(errs, e.nameIDs.give(nameTable, id))
		}
	}
	maps.Copy(e.nameIDs.ids[nameTable], t.before)
	return errors.Join(errs...)
}

// takeTablesLocked makes the tables known under their names, once the rules that ask them are in
// force, and lets go of those before.
func (e *Engine) takeTablesLocked(t *nextTables) error {
	e.staged = nil
	var errs []error
	for i, name := range t.names {
		if old := e.tables[name]; old != nil {
			errs = append(errs, old.Close())
		}
		e.tables[name] = t.maps[i]
	}
	return errors.Join(append(errs, e.dropTablesLocked(t.old))...)
}
