package kernel

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/internal/nl"
)

// RemovedHooks returns the attached interfaces of which another program has removed a hook: it has
// detached a link, or deleted a filter or the clsact above. Attach puts them back. An interface
// that is gone is not among them, nor is one for which the kernel does not answer.
func (e *Engine) RemovedHooks() (indexes []uint32, err error) {
	c, err := openNetlink()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for index, a := range e.links {
		removed, err := a.lost(c)
		if err == nil && removed {
			_, err = linkAt(index)
		}
		switch {
		case errors.Is(err, nl.ErrNoLink):
		case err != nil:
			errs = append(errs, fmt.Errorf("examine the hooks of interface %d: %w", index, err))
		case removed:
			indexes = append(indexes, index)
		}
	}
	return indexes, errors.Join(errs...)
}

// KeepLocal puts the hook of the loopback back if another program has removed it, and reports
// whether one has. Without the hook the host does not reach its own published ports. If that fails
// the next call tries again.
func (e *Engine) KeepLocal() (removed bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.local
	if before == nil {
		return false, nil
	}
	if removed, err = before.lost(); err != nil || !removed {
		return false, err
	}
	e.local = nil
	if err := e.attachLocalLocked(); err != nil {
		e.local = before
		return true, err
	}
	if before.link != nil {
		err = before.link.Close()
	}
	return true, err
}

// lost reports whether the hook of the loopback is not where it was put.
func (l *local) lost() (bool, error) {
	if l.link == nil {
		c, err := openNetlink()
		if err != nil {
			return false, err
		}
		defer c.Close()
		f, err := c.FilterAt(loopback, nl.BeforeEgress)
		return f.Program != uint32(l.program), err
	}
	info, err := l.link.Info()
	if err != nil {
		return false, err
	}
	tcx := info.TCX()
	return tcx == nil || tcx.Ifindex != loopback, nil
}

// lost reports whether a hook of an attachment is not where it was put.
func (a *attachment) lost(c *nl.Conn) (bool, error) {
	if err := a.sound(); errors.Is(err, errDefunct) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	for d, on := range a.filters {
		if !on {
			continue
		}
		f, err := c.FilterAt(int(a.index), filterPlaces[d])
		if err != nil {
			return false, err
		}
		// Anyone can choose a name. It is all there is until this engine sets the filter.
		if id := a.programs[d]; f.Name != filterName(d) || id != 0 && f.Program != uint32(id) {
			return true, nil
		}
	}
	return false, nil
}
