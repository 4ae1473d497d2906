package kernel

import (
	"errors"
	"os"
	"path/filepath"

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

// completeLocked gives the direction that has no link one, and ends what another engine has there.
func (e *Engine) completeLocked(a *attachment) error {
	if !a.half() {
		return nil
	}
	for d, l := range a.links {
		if l != nil {
			continue
		}
		err := e.takeLinkLocked(a, d)
		if errors.Is(err, os.ErrNotExist) {
			err = e.attachLocked(a, d)
		}
		if err != nil {
			return err
		}
	}
	_ = e.pinHooksLocked(a) // before those of others go; Attach tries again
	return errors.Join(e.putNICLocked(a.index), e.replaceOthers(a.index))
}

// takeLinkLocked takes the link that another engine has pinned for a direction: what the engine
// before was about to do. fs.ErrNotExist means that there is none.
func (e *Engine) takeLinkLocked(a *attachment, direction int) error {
	others, err := otherLayouts(e.dir)
	if err != nil {
		return err
	}
	path := e.linkPath(a.index, direction)
	for _, dir := range others {
		l, err := link.LoadPinnedLink(filepath.Join(dir, filepath.Base(path)), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		p, err := e.programLocked(a.framing, direction)
		if err == nil {
			err = programIDs{}.update(l, p)
		}
		if err == nil {
			err = l.Pin(path)
		}
		if err != nil {
			return errors.Join(err, l.Close())
		}
		a.links[direction] = l
		return a.sound()
	}
	return os.ErrNotExist
}
