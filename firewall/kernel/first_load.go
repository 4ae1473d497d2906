package kernel

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

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
	return true, errors.Join(err, e.undoTablesLocked(t), e.forgetVerdictsLocked())
}

// beforeFirstLocked does, when the image is complete, what has to be done before it is in force.
// What can fail for lack of a resource comes first. The facts about the host, its addresses,
// NICs, next hops and routes, hold under any rules.
func (e *Engine) beforeFirstLocked(t *nextTables) error {
	if err := e.pinLocked(); err != nil {
		return err
	}
	if err := e.placeLocked(t); err != nil {
		return err
	}
	if err := e.putSlowPaths(byName[ebpf.Program](&e.objects.weirPrograms)); err != nil {
		return err
	}
	if err := e.takeLinksLocked(); err != nil {
		return err
	}
	e.forwarding.NoRedirectPeer = bit(e.noPeer)
	if err := e.resumeLocalLocked(); err != nil {
		return err
	}
	if err := e.putHostLocked(e.ifs, nil, true); err != nil {
		return err
	}
	if err := e.putHopsLocked(e.stagedHops); err != nil || e.routes == nil {
		return err
	}
	return e.putRoutesLocked(*e.routes)
}

// forgetVerdictsLocked invalidates the verdict caches of the rules in force, also an earlier
// engine's, after a first Load that may have changed facts about the host and failed.
func (e *Engine) forgetVerdictsLocked() error {
	var there weirConfig
	err := e.objects.Config.Lookup(uint32(0), &there)
	if err == nil {
		e.config.Epoch++
		there.Epoch = e.config.Epoch
		err = e.objects.Config.Put(uint32(0), &there)
	}
	if err != nil {
		return fmt.Errorf("invalidate the verdict caches: %w", err)
	}
	return nil
}

// afterFirstLocked removes, when the first Program is in force, what is no longer needed.
func (e *Engine) afterFirstLocked() error {
	err := prune(e.objects.Ifaces, func(index uint32) bool {
		_, ok := interfaceOf(e.ifs, index)
		return ok
	})
	e.synced, e.routes, e.stagedHops = err == nil, nil, nil
	errs := []error{err}
	for _, a := range e.defunct {
		errs = append(errs, e.detach(a))
	}
	e.defunct = nil
	return errors.Join(errs...)
}
