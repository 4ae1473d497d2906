package kernel

import (
	"errors"
	"fmt"
)

// ErrUnpinned means that an interface is attached, but no pin could be made. The hooks of tcx go
// with this process, and packets that meet a filter are dropped from then on. A repeat of Attach
// tries again to pin them.
var ErrUnpinned = errors.New("guarded only until the agent ends: its hooks cannot be pinned")

// pinHooksLocked makes the pins of an attachment that are missing. The hooks are there before:
// without pins they are better than none.
func (e *Engine) pinHooksLocked(a *attachment) error {
	for d, unpinned := range a.unpinned {
		if !unpinned {
			continue
		}
		if err := e.pinHookLocked(a, d); err != nil {
			return fmt.Errorf("%w: %w", ErrUnpinned, err)
		}
		a.unpinned[d] = false
	}
	return nil
}

func (e *Engine) pinHookLocked(a *attachment, direction int) error {
	if a.filters[direction] {
		p, err := e.programLocked(a.framing, direction)
		if err != nil {
			return err
		}
		return e.pinFilterLocked(a, direction, p)
	}
	if e.dir == "" {
		return nil
	}
	path := e.linkPath(a.index, direction)
	if err := removeIfThere(path); err != nil { // of an interface that had this index before
		return err
	}
	return a.links[direction].Pin(path)
}
