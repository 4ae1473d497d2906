package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Tables have ids, by which rules name them. Tables that come with a rule set are made beside those
// in force, under ids of their own. So packets see all of the old rules and tables, or all of the
// new ones. A table that has no members and that no rule names gives its id back.

// maxTables is how many tables there can be that no rule names, of rules and, apart from them, of
// labels. A client that makes up labels must not keep the owner from making tables.
const maxTables = 1024

// maxIdle is how many empty tables that no rule names may wait to be removed: the kernel waits for
// packets when some are removed.
const maxIdle = 64

// isLabel reports whether a table is that of a label, KEY=VALUE.
func isLabel(table string) bool { return strings.Contains(table, "=") }

// LabelsWithoutPlace returns those of the tables of labels that the engine would have to make and
// has no place for. As many labels as reserve are to have a place after them. Before the first Load
// all have one.
func (e *Engine) LabelsWithoutPlace(labels []string, reserve int) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.prog == nil {
		return nil, nil
	}
	named := map[string]bool{}
	for _, name := range e.prog.Tables {
		named[name] = true
	}
	var fresh []string
	for _, name := range labels {
		if e.tables[name] == nil && !named[name] {
			fresh = append(fresh, name)
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	places := maxTables - reserve - e.countLocked(fresh[0])
	if places < len(fresh) && (e.idle > 0 || e.unnamed) {
		if err := e.dropIdleLocked(); err != nil {
			return nil, err
		}
		places = maxTables - reserve - e.countLocked(fresh[0])
	}
	return fresh[min(max(places, 0), len(fresh)):], nil
}

// checkTableCountLocked refuses a table above the limit.
func (e *Engine) checkTableCountLocked(name string) error {
	if e.namedLocked(name) || e.countLocked(name) < maxTables {
		return nil
	}
	if err := e.dropIdleLocked(); err != nil {
		return err
	}
	if e.countLocked(name) < maxTables {
		return nil
	}
	return errManyTables{name}
}

// countLocked counts the tables of the kind of one, without those that rules name.
func (e *Engine) countLocked(name string) (n int) {
	for other := range e.tables {
		if isLabel(other) == isLabel(name) && !e.namedLocked(other) {
			n++
		}
	}
	return n
}

func (e *Engine) namedLocked(table string) bool {
	return e.prog != nil && slices.Contains(e.prog.Tables, table)
}

// errManyTables refuses a table: there are maxTables of its kind.
type errManyTables struct{ name string }

func (e errManyTables) Error() string {
	if isLabel(e.name) {
		return fmt.Sprintf("label %s: pods have %d other labels already that no rule names, "+
			"the maximum", e.name, maxTables)
	}
	return fmt.Sprintf("table %s: there are %d tables already that no rule names, the maximum",
		e.name, maxTables)
}

// Hint returns what to do about it.
func (e errManyTables) Hint() string {
	if isLabel(e.name) {
		return "give pods only labels that rules match, and none that is different for each pod"
	}
	return "remove tables that are not needed: weir fw table NAME destroy"
}

// idleLocked records that a table may have lost its last member, and now and then removes those
// that are not needed.
func (e *Engine) idleLocked(name string) error {
	if e.tables[name] == nil || e.namedLocked(name) {
		return nil
	}
	if empty, err := isEmpty(e.tables[name]); err != nil || !empty {
		return err
	}
	if e.idle++; e.idle < maxIdle {
		return nil
	}
	return e.dropIdleLocked()
}

// dropIdleLocked removes the tables that have no members and that no rule names.
func (e *Engine) dropIdleLocked() error {
	var ids []uint32
	e.idle, e.unnamed = 0, false
	for name, m := range e.tables {
		if e.namedLocked(name) {
			continue
		}
		if empty, err := isEmpty(m); err != nil {
			return err
		} else if empty {
			ids = append(ids, e.nameIDs.ids[nameTable][name])
		}
	}
	return e.dropTablesLocked(ids)
}

func isEmpty(table *ebpf.Map) (bool, error) {
	var first weirTableKey
	err := table.NextKey(nil, &first)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return true, nil
	}
	return false, err
}

// dropTablesLocked frees ids and closes their tables. One empty table, which no packet reads, takes
// all their places: so the kernel waits for packets only once.
func (e *Engine) dropTablesLocked(ids []uint32) error {
	if len(ids) == 0 {
		return nil
	}
	empty, err := newTable()
	if err != nil {
		return err
	}
	all := make([]*ebpf.Map, len(ids))
	for i := range all {
		all[i] = empty
	}
	if err := errors.Join(e.putTables(ids, all), empty.Close()); err != nil {
		return err
	}
	for _, id := range ids {
		name := e.nameIDs.used[nameTable][id]
		current := e.nameIDs.ids[nameTable][name] == id
		if err := e.nameIDs.give(nameTable, id); err != nil {
			return err
		}
		if m := e.tables[name]; current && m != nil {
			delete(e.tables, name)
			if err := m.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// putTables puts many tables in their places. The kernel waits for packets once.
func (e *Engine) putTables(ids []uint32, tables []*ebpf.Map) error {
	if len(ids) == 0 {
		return nil
	}
	fds := make([]uint32, len(tables))
	for i, m := range tables {
		fds[i] = uint32(m.FD())
	}
	if _, err := e.objects.Tables.BatchUpdate(ids, fds, nil); err != nil {
		return fmt.Errorf("put %d tables in place: %w", len(ids), err)
	}
	return nil
}
