package kernel

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/internal/nl"
)

// previousHook is an interface that another engine guards, with both of its links or filters.
type previousHook struct {
	attachment
	programs [2]*ebpf.Program // ours
}

// takesHooks reports whether the next Attach takes the hooks of another engine.
func (e *Engine) takesHooks() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.takesHooksLocked()
}

func (e *Engine) takesHooksLocked() bool {
	return e.previous != nil && e.previous.copies != nil && !e.previous.taken
}

// takeHooksLocked gives our programs all hooks of another engine at once. A packet that is
// forwarded meets the hooks of two interfaces, and each engine knows the flows of its own table
// only. Where the two guard different interfaces, answers meet an engine that has not seen the
// query. An interface whose links cannot be read is left for Attach.
func (e *Engine) takeHooksLocked() error {
	if !e.takesHooksLocked() {
		return nil
	}
	e.previous.taken = true
	c, err := openNetlink()
	if err != nil {
		return err
	}
	defer c.Close()
	hooks, err := e.followHooksLocked(c)
	if err != nil || len(hooks) == 0 {
		return err
	}
	if err := e.switchHooksLocked(c, hooks); err != nil { // both run side by side until Attach
		return errors.Join(e.leaveHooksLocked(hooks, err), e.letGoLocked())
	}
	return errors.Join(e.keepHooksLocked(hooks), e.followPeersLocked())
}

// followHooksLocked finds the hooks of another engine, and copies the states until little is
// missing.
func (e *Engine) followHooksLocked(c *nl.Conn) ([]*previousHook, error) {
	hooks, err := e.previousHooks(c, e.previous.dir)
	if err != nil || len(hooks) == 0 {
		return nil, err
	}
	err = e.enterHooksLocked(hooks)
	if err == nil {
		err = e.followLocked()
	}
	if err != nil {
		return nil, e.leaveHooksLocked(hooks, err)
	}
	return hooks, nil
}

// switchHooksLocked lets our programs decide, and hold what they refuse. What comes from netkits
// has to meet our programs at the host ends, too: theirs mark what they pass as ours do.
func (e *Engine) switchHooksLocked(c *nl.Conn, hooks []*previousHook) error {
	if err := removePeers(e.previous.dir); err != nil {
		return err
	}
	if err := e.holdLocked(); err != nil {
		return err
	}
	for _, h := range hooks {
		for d := range directions {
			if err := h.take(c, d); err != nil && !gone(err) {
				return fmt.Errorf("update the program of interface %d %s: %w", h.index,
					directions[d].name, err)
			}
		}
	}
	return nil
}

// keepHooksLocked migrates what is missing, and ends the other engine at the hooks. When the last
// packet has left its programs, what it has is copied for the last time. So a FIN that it saw while
// the first copy was made is not lost. Then what was held is decided.
func (e *Engine) keepHooksLocked(hooks []*previousHook) error {
	left, err := filepath.Glob(filepath.Join(e.previous.dir, hookPins))
	if err == nil {
		err = e.waitForPackets(e.image)
	}
	if err == nil {
		err = e.catchUpLocked(len(left) == 2*len(hooks))
	}
	errs := []error{e.letGoLocked()}
	if err != nil {
		return errors.Join(e.leaveHooksLocked(hooks, err), errs[0])
	}
	for _, h := range hooks {
		errs = append(errs, e.movePinsLocked(h))
	}
	return errors.Join(append(errs, e.endPreviousLocked())...)
}

// take puts our program in the place of the other engine's.
func (h *previousHook) take(c *nl.Conn, direction int) error {
	if h.filters[direction] {
		return setFilter(c, h.index, direction, h.programs[direction])
	}
	return h.links[direction].Update(h.programs[direction])
}

// enterHooksLocked records the interfaces as guarded: what packets look up about an uplink, its
// addresses, has to be there before the first packet is.
func (e *Engine) enterHooksLocked(hooks []*previousHook) error {
	for _, h := range hooks {
		e.links[h.index] = &h.attachment
		if err := e.putNICLocked(h.index); err != nil {
			return err
		}
	}
	return nil
}

// leaveHooksLocked undoes enterHooksLocked after err.
func (e *Engine) leaveHooksLocked(hooks []*previousHook, err error) error {
	for _, h := range hooks {
		delete(e.links, h.index)
		err = errors.Join(err, e.putNICLocked(h.index), h.close(false))
	}
	return err
}

// previousHooks opens the links that another engine has pinned in dir, and finds its filters.
func (e *Engine) previousHooks(c *nl.Conn, dir string) (hooks []*previousHook, err error) {
	links, err := pinned(dir, "link")
	if err != nil {
		return nil, err
	}
	filters, err := pinned(dir, "filter")
	if err != nil {
		return nil, err
	}
	found := slices.Collect(maps.Keys(filters))
	for index := range links {
		if !filters[index] {
			found = append(found, index)
		}
	}
	for _, index := range found {
		h := &previousHook{attachment: attachment{index: index}}
		h.filters = [2]bool{filters[index], filters[index]}
		if e.links[index] == nil {
			err = e.openHook(c, dir, h)
		}
		switch {
		case e.links[index] == nil && err == nil:
			hooks = append(hooks, h)
			for d := range directions {
				if h.programs[d], err = e.programLocked(h.framing, d); err != nil {
					return nil, e.leaveHooksLocked(hooks, err)
				}
			}
			continue
		case errors.Is(err, nl.ErrNoLink) || errors.Is(err, errDefunct):
			err = removeHookPins(dir, index)
		default:
			err = nil // Attach returns it
		}
		if err := errors.Join(err, h.close(false)); err != nil {
			return nil, e.leaveHooksLocked(hooks, err)
		}
	}
	return hooks, nil
}

// removeHookPins removes what is pinned of an interface that is gone: while it is there, the other
// engine seems to guard something.
func removeHookPins(dir string, index uint32) error {
	pins, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("[lf]i*-%d-*", index)))
	for _, p := range pins {
		err = errors.Join(err, removeIfThere(p))
	}
	return err
}

func (e *Engine) openHook(c *nl.Conn, dir string, h *previousHook) error {
	i, err := c.LinkByIndex(int(h.index))
	if err != nil {
		return err
	}
	if h.framing, err = framingOf(i); err != nil {
		return err
	}
	for d := range directions {
		if h.filters[d] {
			continue
		}
		path := filepath.Join(dir, filepath.Base(e.linkPath(h.index, d)))
		if h.links[d], err = link.LoadPinnedLink(path, nil); err != nil {
			return err
		}
	}
	return h.sound()
}

// movePinsLocked moves the pins of a hook to ours: it is never without one.
func (e *Engine) movePinsLocked(h *previousHook) error {
	for d, l := range h.links {
		if h.filters[d] {
			old := filepath.Join(e.previous.dir, filepath.Base(e.filterPath(h.index, d)))
			err := e.pinFilterLocked(&h.attachment, d, h.programs[d])
			if err = errors.Join(err, removeIfThere(old)); err != nil {
				return fmt.Errorf("pin the filter of interface %d %s: %w", h.index,
					directions[d].name, err)
			}
			continue
		}
		path := e.linkPath(h.index, d)
		if err := removeIfThere(path); err != nil { // of an interface that had this index before
			return err
		}
		if err := l.Pin(path); err != nil {
			return fmt.Errorf("pin the link of interface %d %s: %w", h.index, directions[d].name,
				err)
		}
	}
	return nil
}

// endPreviousLocked removes what another engine has pinned, once it guards no interface, and what
// others have left that never did.
func (e *Engine) endPreviousLocked() error {
	dir := e.previous.dir
	left, err := filepath.Glob(filepath.Join(dir, hookPins))
	if err != nil || len(left) > 0 {
		return err
	}
	return errors.Join(e.migrateRest(dir), clearDir(dir), e.dropPrevious(dir), e.clearIdle())
}
