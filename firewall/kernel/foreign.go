package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/internal/nl"
)

// Foreign is a program at a hook of a guarded interface that is not of this engine. Packets meet it
// before the programs of this engine, or it is of another Weir, whose verdicts count in any case.
type Foreign struct {
	Index   uint32 // of the interface
	Hook    string // xdp, tcx or filter
	Out     bool   // it gets what leaves by the interface
	Name    string // of the program, which its owner has chosen, or the kind of the filter
	Program uint32 // the kernel's id, 0 if it is not known
	Link    uint32 // tcx: the id of its link, 0 if it has none
	Weir    bool   // of another Weir
}

// Foreign returns the programs of others at the hooks of the attached interfaces, in the order in
// which packets meet them. A Weir of another layout, whose pins lie beside those of this engine, is
// not another one: Attach ends it.
func (e *Engine) Foreign() ([]Foreign, error) {
	c, err := openNetlink()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	xdp, err := c.XDPPrograms()
	if err != nil {
		return nil, err
	}
	replaces := e.Replaces()
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Foreign
	var errs []error
	for _, index := range slices.Sorted(maps.Keys(e.links)) {
		if id, on := xdp[int(index)]; on {
			name, err := programName(ebpf.ProgramID(id))
			errs = append(errs, err)
			all = append(all, Foreign{Index: index, Hook: "xdp", Program: id, Name: name})
		}
		for d := range directions {
			found, err := e.foreignAtLocked(c, e.links[index], d)
			if err != nil && !gone(err) {
				errs = append(errs, fmt.Errorf("list the programs of interface %d %s: %w", index,
					directions[d].name, err))
			}
			all = append(all, found...)
		}
	}
	return slices.DeleteFunc(all, func(f Foreign) bool { return f.Weir && replaces }),
		errors.Join(errs...)
}

// foreignAtLocked returns those of one direction of an attachment.
func (e *Engine) foreignAtLocked(c *nl.Conn, a *attachment, direction int) (all []Foreign,
	err error) {
	found := Foreign{Index: a.index, Out: direction == 1}
	if a.filters[direction] {
		found.Hook = "filter"
		filters, err := c.FiltersBefore(int(a.index), filterPlaces[direction])
		for _, f := range filters {
			if a.index != loopback || f.Name != localName {
				found.Name, found.Program = cmp.Or(f.Name, f.Kind), f.Program
				all = append(all, found)
			}
		}
		return all, err
	}
	if a.links[direction] == nil {
		return nil, nil
	}
	own, err := a.links[direction].Info()
	if err != nil {
		return nil, err
	}
	at, err := link.QueryPrograms(link.QueryOptions{Target: int(a.index),
		Attach: directions[direction].attach})
	if err != nil {
		return nil, err
	}
	found.Hook = "tcx"
	before := true
	for _, p := range at.Programs {
		id, _ := p.LinkID()
		if id == own.ID {
			before = false
			continue
		}
		if found.Name, err = programName(p.ID); err != nil {
			return all, err
		}
		found.Program, found.Link = uint32(p.ID), uint32(id)
		found.Weir = strings.HasPrefix(found.Name, filterName(direction))
		if found.Weir || before && (a.index != loopback || found.Name != localName) {
			all = append(all, found)
		}
	}
	return all, nil
}

// programName returns the name of a program, "" if it has none or is gone.
func programName(id ebpf.ProgramID) (string, error) {
	p, err := ebpf.NewProgramFromID(id)
	if gone(err) || id == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}
