package rules

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/rule"
)

// changeMembers adds members to a table or deletes some, at once and without compiling anything.
// The change is saved before it is in force. The message has a line for each member.
// If it is lenient, what is to be deleted and is not a member is not an error.
func (m *Manager) changeMembers(c *rule.Command, lenient bool) (message string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.changeableLocked(); err != nil {
		return "", err
	}
	members := m.rules.Set.Tables[c.Table]
	if lenient && c.Kind == rule.CommandTableDelete {
		c.Entries = slices.DeleteFunc(c.Entries, func(e rule.TableEntry) bool {
			_, member := members[e.Prefix]
			return !member
		})
	}
	if len(c.Entries) == 0 {
		return "", nil
	}
	message = changed(c, members)
	if err := m.changeMembersLocked(c); err != nil {
		return "", err
	}
	return message, nil
}

// changed says what a command does to the members of a table, in ipfw's words.
func changed(c *rule.Command, before rule.Table) string {
	lines := make([]string, len(c.Entries))
	for i, e := range c.Entries {
		have, member := before[e.Prefix]
		switch {
		case c.Kind == rule.CommandTableDelete:
			lines[i] = fmt.Sprintf("deleted: %s %d", e.Prefix, have)
		case member:
			lines[i] = fmt.Sprintf("updated: %s %d", e.Prefix, e.Value)
		default:
			lines[i] = fmt.Sprintf("added: %s %d", e.Prefix, e.Value)
		}
	}
	return strings.Join(lines, "\n")
}

func (m *Manager) changeMembersLocked(c *rule.Command) error {
	set := m.rules.Set
	set.Now = m.config.Clock.Now()
	if c.Timeouts != nil {
		if err := m.checkTimed(set, len(c.Entries)); err != nil {
			return fmt.Errorf("table %s: %w", c.Table, err)
		}
	}
	undo := m.undoMembersLocked(c)
	if err := c.Apply(m.rules.Set); err != nil {
		return errors.Join(err, undo(0))
	}
	saved, err := m.store.prepareMembers(c, m.rules)
	if err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: save the table: %w", err), undo(0))
	}
	for i, e := range c.Entries {
		var err error
		if c.Kind == rule.CommandTableAdd {
			err = m.config.Engine.AddTable(c.Table,
				rule.TableEntry{Prefix: e.Prefix, Value: e.Value})
		} else {
			err = m.config.Engine.DeleteTable(c.Table, e.Prefix)
		}
		if err != nil {
			saved.Discard()
			return errors.Join(fmt.Errorf("table %s: %s: %w", c.Table, e.Prefix, err), undo(i+1))
		}
	}
	if err := saved.Commit(); err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: save the table: %w", err),
			undo(len(c.Entries)))
	}
	m.followMembersLocked(c)
	return nil
}

// undoMembersLocked remembers the members that a command is about to change, only those: tables are
// large. The function puts them back, in the engine those of the first applied entries.
func (m *Manager) undoMembersLocked(c *rule.Command) func(applied int) error {
	table, there := m.rules.Set.Tables[c.Table]
	before, ends := rule.Table{}, map[netip.Prefix]time.Duration{}
	for _, e := range c.Entries {
		if value, member := table[e.Prefix]; member {
			before[e.Prefix] = value
		}
		if at, timed := m.rules.Set.Deadlines[c.Table][e.Prefix]; timed {
			ends[e.Prefix] = at
		}
	}
	return func(applied int) (err error) {
		if now := m.rules.Set.Tables[c.Table]; !there {
			delete(m.rules.Set.Tables, c.Table)
		} else {
			for _, e := range c.Entries {
				delete(now, e.Prefix)
			}
			maps.Copy(now, before)
		}
		for _, e := range c.Entries {
			m.rules.Set.SetDeadline(c.Table, e.Prefix, ends[e.Prefix])
		}
		for _, e := range c.Entries[:applied] {
			if value, member := before[e.Prefix]; member {
				err = errors.Join(err, m.config.Engine.AddTable(c.Table,
					rule.TableEntry{Prefix: e.Prefix, Value: value}))
			} else {
				// the one that was refused may not be there
				_ = m.config.Engine.DeleteTable(c.Table, e.Prefix)
			}
		}
		return err
	}
}

// changedTables returns the members of those tables of next that differ from those of now, none for
// tables that go.
func changedTables(now, next *rule.Ruleset) map[string][]rule.TableEntry {
	changed := map[string][]rule.TableEntry{}
	for name, members := range next.Tables {
		if now != nil && now.Tables[name] != nil && now.Lists[name] == next.Lists[name] &&
			sameTable(now.Tables[name], members) {
			continue
		}
		changed[name] = next.Entries(name)
	}
	if now == nil {
		return changed
	}
	for name := range now.Tables {
		if _, stays := next.Tables[name]; !stays {
			changed[name] = nil
		}
	}
	return changed
}

func sameTable(a, b rule.Table) bool {
	if len(a) != len(b) {
		return false
	}
	for p, v := range a {
		if w, ok := b[p]; !ok || v != w {
			return false
		}
	}
	return true
}
