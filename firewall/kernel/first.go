package kernel

import (
	"errors"
)

// The first Load. Until its switch nothing of what packets see has changed: whatever fails before
// leaves what was in force.

// beforeFirstLocked does, when the image is complete, what has to be done before it is in force.
// What can fail for want of something comes first. What it tells of the host, its addresses and
// cards, is so under any rules.
func (e *Engine) beforeFirstLocked(first *firstTables) error {
	if err := e.pinLocked(); err != nil {
		return err
	}
	if err := e.putTables(first.ids, first.maps); err != nil {
		return err
	}
	for i, name := range first.names {
		if err := e.labels.put(labelTable, first.ids[i], name); err != nil {
			return err
		}
	}
	if err := e.takeLinksLocked(); err != nil {
		return err
	}
	e.forwarding.Plain = bit(e.plain)
	if err := e.resumeLocalLocked(); err != nil {
		return err
	}
	return e.tellHostLocked(e.ifs, nil, true)
}

// afterFirstLocked removes, when the first Program is in force, what nobody needs any more.
func (e *Engine) afterFirstLocked() error {
	err := prune(e.objects.Ifaces, func(index uint32) bool { _, ok := interfaceOf(e.ifs, index); return ok })
	e.told = err == nil
	errs := []error{err}
	for _, a := range e.defunct {
		errs = append(errs, e.detach(a))
	}
	e.defunct = nil
	return errors.Join(errs...)
}

// undoTablesLocked forgets tables that did not come into force.
func (e *Engine) undoTablesLocked(first *firstTables) error {
	errs := []error{first.close()}
	for _, id := range first.ids {
		if _, put := e.labels.used[labelTable][id]; put {
			errs = append(errs, e.labels.give(labelTable, id))
		}
	}
	return errors.Join(errs...)
}
