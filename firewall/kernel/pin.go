package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/cilium/ebpf"
)

// The pins of a layout: maps by their names, programs as prog-BUILD-NAME, links as
// link-IFINDEX-DIRECTION, the inner maps of tables only through the map that holds them.

// replacements are maps that were found pinned.
type replacements map[string]*ebpf.Map

func (r replacements) close() {
	for _, m := range r {
		m.Close()
	}
}

// pinnedMaps returns the maps that an earlier engine of this layout has pinned, none if there is
// none. A directory that holds only some of them is what a start that was killed has left: its maps
// were never in use, so it is cleared away.
func (e *Engine) pinnedMaps(spec *ebpf.CollectionSpec) (replacements, error) {
	old := replacements{}
	if e.dir == "" || e.resized {
		return old, nil
	}
	if _, err := os.Stat(filepath.Join(e.dir, completeName)); errors.Is(err, fs.ErrNotExist) {
		return old, clearDir(e.dir)
	}
	for name, m := range spec.Maps {
		path := filepath.Join(e.dir, name)
		pinned, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			old.close()
			return nil, fmt.Errorf("take over %s: %w (remove everything with: weir down)", path,
				err)
		}
		old[name] = pinned
		// The engine that made these chose their sizes.
		switch name {
		case "states", "tags", "sweep_hints", "tracks", "frags", "refused_frags", "nat_frags":
			m.MaxEntries = pinned.MaxEntries()
		}
		if err := m.Compatible(pinned); err != nil {
			old.close()
			return nil, fmt.Errorf("%s was made by something else: %w (remove everything with: "+
				"weir down)", path, err)
		}
	}
	return old, nil
}

// completeName is pinned last: with it, all maps are there.
const completeName = "config"

// pinLocked pins the maps of a new engine, and programs that were not pinned before.
func (e *Engine) pinLocked() error {
	if e.dir == "" {
		return nil
	}
	if e.takenOver {
		return e.pinPrograms()
	}
	if e.resized {
		if err := e.setAsideLocked(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return err
	}
	maps := e.maps()
	for name, m := range maps {
		if name == completeName {
			continue
		}
		if err := m.Pin(filepath.Join(e.dir, name)); err != nil {
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	if err := e.pinPrograms(); err != nil {
		return err
	}
	if err := maps[completeName].Pin(filepath.Join(e.dir, completeName)); err != nil {
		return fmt.Errorf("pin %s: %w", completeName, err)
	}
	return nil
}

// maps returns the maps by their names in C: all that there are.
func (e *Engine) maps() map[string]*ebpf.Map {
	maps := map[string]*ebpf.Map{}
	for name, m := range byName[ebpf.Map](&e.objects.weirMaps) {
		maps[name] = *m
	}
	return maps
}

// byName returns the objects of a generated struct by their names in C, which are its tags.
func byName[T any](objects any) map[string]**T {
	all := map[string]**T{}
	v := reflect.ValueOf(objects).Elem()
	for i := range v.NumField() {
		all[v.Type().Field(i).Tag.Get("ebpf")] = v.Field(i).Addr().Interface().(**T)
	}
	return all
}

// Remove detaches everything that is pinned below dir and removes the pins. Missing pins are not an
// error. After an error the pins stay. A hook that is left would drop packets without its second
// program, which the kernel removes with the last pin. The pins also say what is left to remove.
// The next engine does not take them over: the states miss the packets of interfaces without a
// hook.
func Remove(dir string) error {
	layouts, err := filepath.Glob(filepath.Join(dir, "layout-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range layouts {
		err := removeIfThere(filepath.Join(l, completeName)) // before the first hook goes
		if err == nil {
			err = errors.Join(removeLinks(l), removeFilters(l), removeLocal(l))
		}
		if err == nil {
			err = clearDir(l)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clearDir removes a directory of pins.
func clearDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// The mark of completeness goes first, so that a removal that is cut short is not taken for
	// something to take over.
	errs := []error{removeIfThere(filepath.Join(dir, completeName))}
	for _, entry := range entries {
		errs = append(errs, removeIfThere(filepath.Join(dir, entry.Name())))
	}
	errs = append(errs, removeIfThere(dir))
	return errors.Join(errs...)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
