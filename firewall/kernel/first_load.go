package kernel

import (
	"errors"
	"maps"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// The first Load. Until its switch nothing of what packets see has changed: whatever fails before
// leaves what was in force.

// replaceFirst is Replace if nothing of this engine is in force yet; else it does nothing and
// returns false.
func (e *Engine) replaceFirst(p *program.Program,
	tables map[string][]rule.TableEntry) (done bool,
	err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.staged == nil {
		return false, nil
	}
	synced := maps.Clone(e.staged)
	maps.Copy(e.staged, tables)
	t, err := e.firstTablesLocked(p)
	if err == nil {
		err = e.switchLocked(p, t)
	}
	if err == nil {
		return true, e.afterFirstLocked()
	}
	if e.switched {
		return true, err
	}
	e.staged = synced
	return true, errors.Join(err, e.undoTablesLocked(t))
}

// beforeFirstLocked does, when the image is complete, what has to be done before it is in force.
// What can fail for lack of a resource comes first. The facts about the host, its addresses and
// NICs, hold under any rules.
func (e *Engine) beforeFirstLocked(t *nextTables) error {
	if err := e.pinLocked(); err != nil {
		return err
	}
	if err := e.placeLocked(t); err != nil {
		return err
	}
	if err := e.takeLinksLocked(); err != nil {
		return err
	}
	e.forwarding.NoRedirectPeer = bit(e.noPeer)
	if err := e.resumeLocalLocked(); err != nil {
		return err
	}
	return e.putHostLocked(e.ifs, nil, true)
}

// afterFirstLocked removes, when the first Program is in force, what is no longer needed.
func (e *Engine) afterFirstLocked() error {
	err := prune(e.objects.Ifaces, func(index uint32) bool {
		_, ok := interfaceOf(e.ifs, index)
		return ok
	})
	e.synced = err == nil
	errs := []error{err}
	for _, a := range e.defunct {
		errs = append(errs, e.detach(a))
	}
	e.defunct = nil
	return errors.Join(errs...)
}
