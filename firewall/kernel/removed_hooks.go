package kernel

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/internal/nl"
)

// RemovedHooks returns the attached interfaces of which another program has removed a hook: it has
// detached a link, or deleted a filter or the clsact above. Attach puts them back. An interface
// that is gone is not among them. When the kernel does not answer for one, the others are left out.
func (e *Engine) RemovedHooks() (indexes []uint32, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var c *nl.Conn
	for index, a := range e.links {
		if a.filters[0] && c == nil {
			if c, err = openNetlink(); err != nil {
				return indexes, err
			}
			defer c.Close()
		}
		removed, err := a.lost(c)
		if err == nil && removed {
			_, err = linkAt(index)
			if removed = err == nil; errors.Is(err, nl.ErrNoLink) {
				err = nil
			}
		}
		if err != nil {
			return indexes, fmt.Errorf("examine the hooks of interface %d: %w", index, err)
		}
		if removed {
			indexes = append(indexes, index)
		}
	}
	return indexes, nil
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
		name, err := c.FilterName(int(a.index), filterPlaces[d])
		if err != nil || name != filterName(d) {
			return err == nil, err
		}
	}
	return false, nil
}
