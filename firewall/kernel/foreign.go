package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/internal/nl"
)

// Foreign is a program at a hook of a guarded interface that is not of this engine. Packets meet it
// before the programs of this engine, or it is of another Weir, whose verdicts count in any case.
type Foreign struct {
	Index uint32 // of the interface
	Hook  string // xdp, tcx, filter or nftables
	Out   bool   // it gets what leaves by the interface
	// of the program, which its owner has chosen, or the kind of the filter, or table and chain
	Name    string
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
	chains, unlisted := e.egressChains(c)
	replaces := e.Replaces()
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Foreign
	var errs []error
	own, err := e.ownLocalLocked(replaces)
	errs = append(errs, err, unlisted)
	for _, index := range slices.Sorted(maps.Keys(e.links)) {
		if id, on := xdp[int(index)]; on {
			name, err := programName(ebpf.ProgramID(id))
			errs = append(errs, err)
			all = append(all, Foreign{Index: index, Hook: "xdp", Program: id, Name: name})
		}
		for d := range directions {
			if d == 1 {
				all = append(all, chains[index]...)
			}
			found, err := e.foreignAtLocked(c, e.links[index], d)
			if err != nil && !gone(err) {
				errs = append(errs, fmt.Errorf("list the programs of interface %d %s: %w", index,
					directions[d].name, err))
			}
			all = append(all, found...)
		}
	}
	return slices.DeleteFunc(all, func(f Foreign) bool { return f.Weir && replaces || own(f) }),
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
			found.Name, found.Program = cmp.Or(f.Name, f.Kind), f.Program
			all = append(all, found)
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
		if found.Weir || before {
			all = append(all, found)
		}
	}
	return all, nil
}

// ownLocalLocked returns a function that reports whether a program is the hook of the loopback of
// this engine. Before the first Load that is the pinned one, of an engine of another layout until
// that is replaced.
func (e *Engine) ownLocalLocked(replaces bool) (func(Foreign) bool, error) {
	var ours Foreign
	var err error
	switch {
	case e.local != nil && e.local.link == nil:
		ours.Program = uint32(e.local.program)
	case e.local != nil:
		ours.Link, err = linkID(e.local.link)
	case e.dir != "":
		ours, err = pinnedLocal(e.dir)
	}
	return func(f Foreign) bool {
		if f.Index != loopback || !f.Out || f.Name != localName {
			return false
		}
		return replaces || f.Link == ours.Link && (f.Link != 0 || f.Program == ours.Program)
	}, err
}

// pinnedLocal returns the link or the program of the hook of the loopback that is pinned in dir.
func pinnedLocal(dir string) (found Foreign, err error) {
	l, err := link.LoadPinnedLink(filepath.Join(dir, localLink), nil)
	if err == nil {
		defer l.Close()
		found.Link, err = linkID(l)
		return found, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	p, err := ebpf.LoadPinnedProgram(filepath.Join(dir, localFilter), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	defer p.Close()
	id, err := programIDs{}.of(p)
	found.Program = uint32(id)
	return found, err
}

func linkID(l link.Link) (uint32, error) {
	info, err := l.Info()
	if err != nil {
		return 0, err
	}
	return uint32(info.ID), nil
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
