package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// trieKey returns the key of a prefix in a trie: the family first, so that ::/0 holds no IPv4
// address.
func trieKey(p netip.Prefix) weirTableKey {
	k := weirTableKey{Bits: 32 + uint32(p.Bits())}
	k.Family[0] = 6
	if p.Addr().Is4() {
		k.Family[0] = 4
		k.Bits += 96
	}
	hi, lo := packet.AddrWords(p.Masked().Addr())
	binary.BigEndian.PutUint64(k.Addr[:8], hi)
	binary.BigEndian.PutUint64(k.Addr[8:], lo)
	return k
}

// maxMembers is how many members a table can have.
const maxMembers = 1 << 21

func newTable() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "weir_table", Type: ebpf.LPMTrie, KeySize: 24, ValueSize: 4, MaxEntries: maxMembers,
		Flags: noPrealloc,
	})
	if err != nil {
		return nil, fmt.Errorf("make a table: %w", err)
	}
	return m, nil
}

// noPrealloc is BPF_F_NO_PREALLOC.
const noPrealloc = 1

// tableLocked returns the trie of a table, an empty one if it was never mentioned before.
func (e *Engine) tableLocked(name string) (*ebpf.Map, error) {
	if m := e.tables[name]; m != nil {
		return m, nil
	}
	if err := e.checkTableCountLocked(name); err != nil {
		return nil, err
	}
	m, err := newTable()
	if err != nil {
		return nil, err
	}
	if err := e.enterTableLocked(name, m); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// enterTableLocked makes a trie that of a table.
func (e *Engine) enterTableLocked(name string, m *ebpf.Map) error {
	id, err := e.nameIDs.id(nameTable, name)
	if err == nil {
		err = e.objects.Tables.Put(id, m)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", name, err)
	}
	e.tables[name] = m
	return nil
}

// SetTable replaces the members of a table at once: the new ones are written beside the old ones,
// and then take their place.
func (e *Engine) SetTable(name string, entries []rule.TableEntry) error {
	if err := checkMembers(name, entries); err != nil {
		return err
	}
	if e.stageTable(name, func([]rule.TableEntry) []rule.TableEntry {
		return slices.Clone(entries)
	}) {
		return nil
	}
	m, err := newTable()
	if err != nil {
		return err
	}
	if err := fillTable(m, entries); err != nil {
		return errors.Join(fmt.Errorf("table %s: %w", name, err), m.Close())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.tables[name]
	if old == nil {
		if err := e.checkTableCountLocked(name); err != nil {
			return errors.Join(err, m.Close())
		}
	}
	if err := e.enterTableLocked(name, m); err != nil {
		return errors.Join(err, m.Close())
	}
	err = e.changedLocked()
	if old != nil {
		err = errors.Join(err, old.Close())
	}
	return errors.Join(err, e.idleLocked(name))
}

// checkMembers refuses what is not a prefix.
func checkMembers(table string, entries []rule.TableEntry) error {
	for i := range entries {
		if !entries[i].Prefix.IsValid() {
			return fmt.Errorf("table %s: %s is not a prefix", table, entries[i].Prefix)
		}
	}
	return nil
}

// stageTable changes the members of a table that are to come with the first Load. It returns false
// after that Load.
func (e *Engine) stageTable(name string,
	change func([]rule.TableEntry) []rule.TableEntry) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.staged == nil {
		return false
	}
	e.staged[name] = change(e.staged[name])
	return true
}

// fillTable writes many members.
func fillTable(m *ebpf.Map, entries []rule.TableEntry) error {
	const batch = 1 << 16
	keys, values := make([]weirTableKey, 0, min(batch, len(entries))),
		make([]uint32, 0, min(batch, len(entries)))
	for len(entries) > 0 {
		n := min(batch, len(entries))
		keys, values = keys[:0], values[:0]
		for _, t := range entries[:n] {
			if !t.Prefix.IsValid() {
				return fmt.Errorf("%s is not a prefix", t.Prefix)
			}
			keys, values = append(keys, trieKey(t.Prefix)), append(values, t.Value)
		}
		if done, err := m.BatchUpdate(keys, values, nil); err != nil {
			return fmt.Errorf("add %s: %w", entries[min(done, n-1)].Prefix, err)
		}
		entries = entries[n:]
	}
	return nil
}

// AddTable adds a member or changes its value.
func (e *Engine) AddTable(name string, t rule.TableEntry) error {
	if !t.Prefix.IsValid() {
		return fmt.Errorf("table %s: %s is not a prefix", name, t.Prefix)
	}
	if e.stageTable(name, func(all []rule.TableEntry) []rule.TableEntry {
		return append(all, t)
	}) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := e.tableLocked(name)
	if err != nil {
		return err
	}
	if err := m.Put(trieKey(t.Prefix), t.Value); err != nil {
		return fmt.Errorf("table %s: add %s: %w", name, t.Prefix, err)
	}
	return e.changedLocked()
}

// DeleteTable removes a member. A member that does not exist is an error.
func (e *Engine) DeleteTable(name string, p netip.Prefix) error {
	if !p.IsValid() {
		return fmt.Errorf("table %s: %s is not a prefix", name, p)
	}
	missing := fmt.Errorf("table %s: delete %s: %w", name, p, ebpf.ErrKeyNotExist)
	found := false
	if e.stageTable(name, func(all []rule.TableEntry) []rule.TableEntry {
		return slices.DeleteFunc(all, func(t rule.TableEntry) bool {
			same := trieKey(t.Prefix) == trieKey(p)
			found = found || same
			return same
		})
	}) {
		if !found {
			return missing
		}
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.tables[name]
	if m == nil {
		return missing
	}
	if err := m.Delete(trieKey(p)); err != nil {
		return fmt.Errorf("table %s: delete %s: %w", name, p, err)
	}
	return errors.Join(e.changedLocked(), e.idleLocked(name))
}
