package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// The programs of another layout go on guarding their interfaces until ours do, interface by
// interface, so that there is no moment without either. The states of layouts that we know are
// carried over (carry.go); pins of others are never read, since their bytes may mean anything:
// their states are lost, and the agent adopts connections that are open, as on a machine where Weir
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

// Replaces says that an engine of another layout, or with tables of other sizes, guards interfaces
// until ours does.
func (e *Engine) Replaces() bool {
	if e.dir == "" {
		return false
	}
	links, err := filepath.Glob(filepath.Join(filepath.Dir(e.dir), "layout-*", "[lf]i*-*-*"))
	return err == nil && slices.ContainsFunc(links, func(l string) bool {
		return filepath.Dir(l) != e.dir
	})
}

// replaceOthers ends what other layouts do at an interface that ours guards now. A directory
// without any link left goes.
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
		errs = append(errs, e.carryFor(dir, index))
		links, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("link-%d-*", index)))
		if err != nil {
			return err
		}
		for _, l := range links {
			errs = append(errs, removeLink(l))
		}
		// A filter was replaced by ours, which has the same place: only its pin is left.
		for d := range directions {
			errs = append(errs, removeIfThere(filepath.Join(dir,
				fmt.Sprintf("filter-%d-%s", index, directions[d].name))))
		}
		left, err := filepath.Glob(filepath.Join(dir, "[lf]i*-*-*")) // links and filters
		if err == nil && len(left) == 0 {
			err = errors.Join(e.carryRest(dir), clearDir(dir), e.dropOlder(dir))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("take interface %d over from an older Weir: %w", index, err)
	}
	return nil
}

// carryFor brings the states of another engine up to this moment, in which both judge the packets
// of an interface.
func (e *Engine) carryFor(dir string, index uint32) error {
	if e.older == nil || e.older.dir != dir || !e.older.copied {
		return nil
	}
	mine, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("[lf]i*-%d-*", index)))
	if err != nil || len(mine) == 0 {
		return err
	}
	all, err := filepath.Glob(filepath.Join(dir, "[lf]i*-*-*"))
	if err != nil {
		return err
	}
	// A filter was replaced already, so its engine has missed the last packets: what it knows is
	// not exact.
	return e.carryLocked(adoptMerge, len(all) == len(mine) && !e.noTCX)
}

// carryRest copies the states that another engine has made since they were copied last, now that it
// judges nothing any more.
func (e *Engine) carryRest(dir string) error {
	if e.older == nil || e.older.dir != dir || !e.older.copied {
		return nil
	}
	return e.carryLocked(0, true)
}

// dropOlder lets go of another engine's pins.
func (e *Engine) dropOlder(dir string) error {
	if e.older == nil || e.older.dir != dir {
		return nil
	}
	pins := e.older.pins
	e.older = nil
	return pins.close()
}
