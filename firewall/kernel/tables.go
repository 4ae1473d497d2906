package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Tables have ids, by which rules name them. Tables that come with a rule set are made beside those
// in force, under ids of their own: packets see all of the old rules and tables, or all of the new
// ones. A table that has no members and that no rule names gives its id back.

// maxTables is how many tables there can be that no rule names, of rules and, apart from them, of
// labels: a client that makes up labels must not keep the owner from making tables.
const maxTables = 1024

// maxIdle is how many empty tables that no rule names may wait to be removed: the kernel waits for
// packets when some are removed.
const maxIdle = 64

// isLabel reports whether a table is that of a label, KEY=VALUE.
func isLabel(table string) bool { return strings.Contains(table, "=") }

// CheckTable refuses a table that the engine would have to make, unless it could make as many more
// of its kind after it as reserve says.
func (e *Engine) CheckTable(name string, reserve int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tables[name] != nil {
		return nil
	}
	return e.checkTableCountLocked(name, reserve)
}

// checkTableCountLocked refuses a table above the limit less a reserve.
func (e *Engine) checkTableCountLocked(name string, reserve int) error {
	limit := maxTables - reserve
	if e.namedLocked(name) || e.countLocked(name) < limit {
		return nil
	}
	if e.idle > 0 || e.unnamed { // else there is none: a refusal costs no look at all tables
		if err := e.dropIdleLocked(); err != nil {
			return err
		}
		if e.countLocked(name) < limit {
			return nil
		}
	}
	return errManyTables{name, limit}
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

// errManyTables refuses a table: there are as many of its kind as the limit.
type errManyTables struct {
	name  string
	limit int
}

func (e errManyTables) Error() string {
	if isLabel(e.name) {
		return fmt.Sprintf("label %s: pods have %d other labels already that no rule names, "+
			"the maximum", e.name, e.limit)
	}
	return fmt.Sprintf("table %s: there are %d tables already that no rule names, the maximum",
		e.name, e.limit)
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
