package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// The programs of another layout guard their interfaces until ours do: at all interfaces from the
// first Attach on (previous_hooks.go), so that none is ever unguarded. The states of known layouts
// are migrated (migrate.go); pins of others are never read, since their bytes may mean anything.
// Their states are lost, and the agent adopts connections that are open, as on a machine where Weir
// starts for the first time.

// otherLayouts returns the directories of layouts other than ours.
func otherLayouts(dir string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "layout-*"))
	if err != nil {
		return nil, err
	}
	var others []string
	for _, d := range all {
		if d != dir {
			others = append(others, d)
		}
	}
	return others, nil
}

// guards reports whether the engine that has pinned something in dir has a hook.
func guards(dir string) bool {
	pins, err := filepath.Glob(filepath.Join(dir, hookPins))
	return err == nil && len(pins) > 0
}

// clearIdle removes the directories of other layouts that guard nothing.
func (e *Engine) clearIdle() error {
	others, err := otherLayouts(e.dir)
	errs := []error{err}
	for _, dir := range others {
		if !guards(dir) {
			errs = append(errs, clearDir(dir))
		}
	}
	return errors.Join(errs...)
}

// Replaces reports whether an engine of another layout, or with tables of other sizes, guards
// interfaces until ours does.
func (e *Engine) Replaces() bool {
	if e.dir == "" {
		return false
	}
	links, err := filepath.Glob(filepath.Join(filepath.Dir(e.dir), "layout-*", hookPins))
	return err == nil && slices.ContainsFunc(links, func(l string) bool {
		return filepath.Dir(l) != e.dir
	})
}

// replaceOthers detaches other layouts from an interface that ours guards now. It removes a
// directory without any link left.
func (e *Engine) replaceOthers(index uint32) error {
	if e.dir == "" {
		return nil
	}
	others, err := otherLayouts(e.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range others {
		errs = append(errs, e.migrateFor(dir, index))
		links, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("link-%d-*", index)))
		if err != nil {
			return err
		}
		links = append(links, filepath.Join(dir, fmt.Sprintf("netkit-%d", index)))
		for _, l := range links {
			errs = append(errs, removeLink(l))
		}
		// Our filter has replaced the other one in its place: only the pin is left.
		for d := range directions {
			errs = append(errs, removeIfThere(filepath.Join(dir,
				fmt.Sprintf("filter-%d-%s", index, directions[d].name))))
		}
		left, err := filepath.Glob(filepath.Join(dir, hookPins))
		if err == nil && len(left) == 0 {
			err = errors.Join(e.migrateRest(dir), clearDir(dir), e.dropPrevious(dir))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("take interface %d over from a previous Weir: %w", index, err)
	}
	return nil
}

// detachOthersLocked detaches other layouts from an interface that ours does not guard.
func (e *Engine) detachOthersLocked(index uint32) error {
	if !e.Replaces() {
		return nil
	}
	others, err := otherLayouts(e.dir)
	if err != nil {
		return err
	}
	for _, dir := range others {
		filters, err := pinned(dir, "filter")
		if err != nil {
			return err
		}
		if !filters[index] {
			continue
		}
		if err := deleteFilters(index); err != nil { // the pins stay, too
			return err
		}
	}
	return e.replaceOthers(index)
}

// migrateFor brings the states of another engine up to date while both engines evaluate the packets
// of an interface.
func (e *Engine) migrateFor(dir string, index uint32) error {
	if e.previous == nil || e.previous.dir != dir || e.previous.copies == nil {
		return nil
	}
	mine, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("[lf]i*-%d-*", index)))
	if err != nil || len(mine) == 0 {
		return err
	}
	all, err := filepath.Glob(filepath.Join(dir, hookPins))
	if err != nil {
		return err
	}
	how := uint32(adoptMerge)
	if e.noTCX { // a filter was replaced already, so its engine has missed the last packets
		how |= adoptStale
	}
	_, err = e.migrateLocked(pass{how: how, which: everything, last: len(all) == len(mine)})
	return err
}

// migrateRest copies the states that another engine has made since they were copied last, now that
// it evaluates nothing any more.
func (e *Engine) migrateRest(dir string) error {
	if e.previous == nil || e.previous.dir != dir || e.previous.copies == nil {
		return nil
	}
	_, err := e.migrateLocked(pass{which: changed, last: true})
	return err
}

// dropPrevious closes another engine's pins, and ends what it had and this one has not.
func (e *Engine) dropPrevious(dir string) error {
	if e.previous == nil || e.previous.dir != dir {
		return nil
	}
	pins := e.previous.pins
	e.previous = nil
	return errors.Join(e.endUnwantedLocked(), pins.close())
}
