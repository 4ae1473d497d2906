package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Pins of another layout are never read: their bytes may mean anything. Their programs go on guarding their interfaces until ours do, interface by interface,
// so that there is no moment without either. The states in them are lost; the agent adopts connections that are open, as on a machine where
// Weir starts for the first time.

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

// replaceOthers ends what other layouts do at an interface that ours guards now. A directory without any link left goes.
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
		links, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("link-%d-*", index)))
		if err != nil {
			return err
		}
		for _, l := range links {
			errs = append(errs, removeLink(l))
		}
		// A filter was replaced by ours, which has the same place: only its pin is left.
		for d := range directions {
			errs = append(errs, removeIfThere(filepath.Join(dir, fmt.Sprintf("filter-%d-%s", index, directions[d].name))))
		}
		left, err := filepath.Glob(filepath.Join(dir, "[lf]i*-*-*")) // links and filters
		if err == nil && len(left) == 0 {
			err = clearDir(dir)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("take interface %d over from an older Weir: %w", index, err)
	}
	return nil
}
