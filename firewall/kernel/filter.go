package kernel

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/internal/nl"
)

// Kernels before 6.6 have no tcx. There the programs hang in tc filters below a clsact queueing
// discipline, which stay when the process ends. A pin of each program, filter-IFINDEX-DIRECTION,
// says that the filter is ours.

// filterPlaces are where the filters of the directions hang.
var filterPlaces = [2]nl.FilterPlace{nl.Ingress, nl.Egress}

func (e *Engine) filterPath(index uint32, direction int) string {
	return filepath.Join(e.dir, fmt.Sprintf("filter-%d-%s", index, directions[direction].name))
}

// filterLocked attaches one direction by a filter.
func (e *Engine) filterLocked(a *attachment, direction int) error {
	c, err := openNetlink()
	if err != nil {
		return err
	}
	defer c.Close()
	program, err := e.programLocked(a.framing, direction)
	if err != nil {
		return err
	}
	id, err := e.programIDs.of(program)
	if err != nil {
		return err
	}
	a.filters[direction] = true
	a.unpinned[direction] = e.pinFilterLocked(a, direction, program) != nil
	a.programs[direction] = id
	return setFilter(c, a.index, direction, program)
}

// pinFilterLocked records that a filter is ours.
func (e *Engine) pinFilterLocked(a *attachment, direction int, program *ebpf.Program) error {
	if e.dir == "" {
		return nil
	}
	// a pin belongs to an object, and this one may be pinned for many interfaces
	clone, err := program.Clone()
	if err != nil {
		return err
	}
	defer clone.Close()
	path := e.filterPath(a.index, direction)
	return errors.Join(removeIfThere(path), clone.Pin(path))
}

func setFilter(c *nl.Conn, index uint32, direction int, program *ebpf.Program) error {
	return c.SetFilter(int(index), filterPlaces[direction], program.FD(), filterName(direction))
}

func filterName(direction int) string { return "weir_" + directions[direction].name }

// unfilter takes the filters of an attachment away.
func (e *Engine) unfilter(a *attachment) error {
	if !a.filters[0] && !a.filters[1] {
		return nil
	}
	c, err := openNetlink()
	if err != nil {
		return err
	}
	defer c.Close()
	var errs []error
	for d := range directions {
		err := c.DeleteFilter(int(a.index), filterPlaces[d])
		if err == nil && e.dir != "" { // or nothing would show that the filter is ours
			err = removeIfThere(e.filterPath(a.index, d))
		}
		errs = append(errs, err)
	}
	if err = errors.Join(errs...); err == nil {
		a.filters = [2]bool{}
	}
	return err
}

// deleteFilters deletes the filters of an interface in both directions.
func deleteFilters(index uint32) error {
	c, err := openNetlink()
	if err != nil {
		return err
	}
	defer c.Close()
	return errors.Join(c.DeleteFilter(int(index), nl.Ingress),
		c.DeleteFilter(int(index), nl.Egress))
}

// removeFilters deletes the filters whose pins lie below dir.
func removeFilters(dir string) error {
	found, err := pinned(dir, "filter")
	if err != nil || len(found) == 0 {
		return err
	}
	c, err := nl.Open(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	var errs []error
	for index := range found {
		for d := range directions {
			errs = append(errs, c.DeleteFilter(int(index), filterPlaces[d]))
		}
	}
	return errors.Join(errs...)
}

// pinned returns the interfaces that have pins of a kind below dir.
func pinned(dir, kind string) (map[uint32]bool, error) {
	paths, err := filepath.Glob(filepath.Join(dir, kind+"-*-*"))
	if err != nil {
		return nil, err
	}
	found := map[uint32]bool{}
	for _, p := range paths {
		index, err := strconv.ParseUint(strings.Split(filepath.Base(p), "-")[1], 10, 32)
		if err == nil {
			found[uint32(index)] = true
		}
	}
	return found, nil
}
