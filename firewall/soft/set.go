package soft

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// SetTable replaces the members of a table.
func (e *Engine) SetTable(name string, entries []rule.TableEntry) error {
	t, err := newPrefixes(name, entries)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tableLocked(name).set.Store(t)
	e.forgetTableLocked(name)
	return nil
}

// newPrefixes returns the members of a table.
func newPrefixes(table string, entries []rule.TableEntry) (*prefixes, error) {
	t := &prefixes{}
	for _, m := range entries {
		if !m.Prefix.IsValid() {
			return nil, fmt.Errorf("soft: table %s: invalid prefix", table)
		}
		t.set(m.Prefix, m.Value, true)
	}
	return t, nil
}

// AddTable adds a member, or replaces its value.
func (e *Engine) AddTable(name string, m rule.TableEntry) error {
	if !m.Prefix.IsValid() {
		return fmt.Errorf("soft: table %s: invalid prefix", name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tableLocked(name)
	t.set.Store(t.set.Load().with(m.Prefix, m.Value))
	return nil
}

// DeleteTable removes a member.
func (e *Engine) DeleteTable(name string, p netip.Prefix) error {
	if !p.IsValid() {
		return fmt.Errorf("soft: table %s: invalid prefix", name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tableLocked(name)
	defer e.forgetTableLocked(name)
	less, ok := t.set.Load().without(p)
	if !ok {
		return fmt.Errorf("soft: table %s has no member %v", name, p)
	}
	t.set.Store(less)
	return nil
}

// tableLocked returns the table with a name and makes it at its first mention.
func (e *Engine) tableLocked(name string) *members {
	t := e.tables[name]
	if t == nil {
		t = &members{}
		t.set.Store(&prefixes{})
		e.tables[name] = t
	}
	return t
}

// forgetTableLocked forgets a table without members that no rule names. A node whose pods have new
// labels again and again has as many tables.
func (e *Engine) forgetTableLocked(name string) {
	t := e.tables[name]
	if t != nil && t.set.Load().n == 0 && !slices.Contains(e.cfg.prog.Tables, name) {
		delete(e.tables, name)
	}
}

// SetInterfaces implements firewall.Engine.
func (e *Engine) SetInterfaces(ifs []firewall.Interface) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ifs = ifs
	e.hostLocked()
	return nil
}

// SetRoutes implements firewall.Engine.
func (e *Engine) SetRoutes(routes []firewall.Route) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.routes = routes
	e.hostLocked()
	return nil
}

func (e *Engine) hostLocked() {
	c := *e.cfg
	c.host = newHost(c.prog, e.ifs, e.routes)
	e.installLocked(&c)
}
