package kernel

import (
	"errors"
	"os"

	"github.com/cilium/ebpf/link"
)

// loadLinks opens the pinned links of an interface. One direction may have none: the engine before
// died between the two. What is there continues to evaluate packets, and Attach adds the other one.
func (e *Engine) loadLinks(a *attachment) error {
	missing := 0
	for d := range directions {
		l, err := link.LoadPinnedLink(e.linkPath(a.index, d), nil)
		if errors.Is(err, os.ErrNotExist) {
			missing++
			continue
		}
		if err != nil {
			return err
		}
		a.links[d] = l
	}
	if missing == len(directions) {
		return os.ErrNotExist
	}
	return a.sound()
}

// half reports whether one direction has no link.
func (a *attachment) half() bool {
	return !a.filters[0] && (a.links[0] == nil || a.links[1] == nil)
}

// completeLocked attaches the direction that has no link, and ends what another engine has there.
func (e *Engine) completeLocked(a *attachment) error {
	if !a.half() {
		return nil
	}
	for d, l := range a.links {
		if l != nil {
			continue
		}
		if err := e.attachLocked(a, d); err != nil {
			return err
		}
	}
	return errors.Join(e.putNICLocked(a.index), e.replaceOthers(a.index))
}
