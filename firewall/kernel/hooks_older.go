package kernel

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/internal/nl"
)

// olderHook is an interface that another engine guards, with both of its links.
type olderHook struct {
	attachment
	programs [2]*ebpf.Program // ours
}

// takeHooksLocked gives our programs the links of another engine, one right after the other. A
// packet that is forwarded meets the hooks of two interfaces, and each engine knows the flows of
// its own table only: where the two guard different interfaces for long, answers meet an engine
// that has not seen the question. An interface whose links cannot be read is left for Attach.
func (e *Engine) takeHooksLocked() error {
	o := e.older
	if o == nil || !o.copied || o.taken || e.noTCX {
		return nil
	}
	o.taken = true
	hooks, err := e.olderHooks(o.dir)
	if err != nil || len(hooks) == 0 {
		return err
	}
	if err := e.carryLocked(true, false); err != nil { // little is missing afterwards
		return closeHooks(hooks, err)
	}
	var errs []error
	for i := range hooks {
		h := &hooks[i]
		for d, l := range h.links {
			if err := l.Update(h.programs[d]); err != nil && !gone(err) {
				errs = append(errs, fmt.Errorf("update the program of interface %d %s: %w",
					h.index, directions[d].name, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil { // both go on side by side, until Attach
		return closeHooks(hooks, err)
	}
	left, err := filepath.Glob(filepath.Join(o.dir, "[lf]i*-*-*"))
	if err != nil {
		return closeHooks(hooks, err)
	}
	if err := e.carryLocked(true, len(left) == 2*len(hooks)); err != nil {
		return closeHooks(hooks, err)
	}
	for i := range hooks {
		errs = append(errs, e.keepHookLocked(&hooks[i]))
	}
	return errors.Join(append(errs, e.endOlderLocked())...)
}

// olderHooks opens the links that another engine has pinned in dir.
func (e *Engine) olderHooks(dir string) (hooks []olderHook, err error) {
	found, err := pinned(dir, "link")
	if err != nil || len(found) == 0 {
		return nil, err
	}
	c, err := nl.Open(nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for index := range found {
		h := olderHook{attachment: attachment{index: index}}
		if e.links[index] == nil && e.openHook(c, dir, &h) == nil {
			hooks = append(hooks, h)
		} else if err := h.close(false); err != nil {
			return nil, closeHooks(hooks, err)
		}
	}
	return hooks, nil
}

func (e *Engine) openHook(c *nl.Conn, dir string, h *olderHook) error {
	i, err := c.LinkByIndex(int(h.index))
	if err != nil {
		return err
	}
	if h.framing, err = framingOf(i); err != nil {
		return err
	}
	for d := range directions {
		if h.programs[d], err = e.program(h.framing, d); err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.Base(e.linkPath(h.index, d)))
		if h.links[d], err = link.LoadPinnedLink(path, nil); err != nil {
			return err
		}
	}
	return h.sound()
}

// keepHookLocked makes a hook ours: its pins move, so that it is never without one.
func (e *Engine) keepHookLocked(h *olderHook) error {
	a := h.attachment
	for d, l := range a.links {
		path := e.linkPath(a.index, d)
		if err := removeIfThere(path); err != nil { // of an interface that had this index before
			return errors.Join(err, a.close(false))
		}
		if err := l.Pin(path); err != nil {
			return errors.Join(fmt.Errorf("pin the link of interface %d %s: %w", a.index,
				directions[d].name, err), a.close(false))
		}
	}
	e.links[a.index] = &a
	return e.putCardLocked(a.index)
}

func closeHooks(hooks []olderHook, err error) error {
	for i := range hooks {
		err = errors.Join(err, hooks[i].close(false))
	}
	return err
}

// endOlderLocked removes what another engine has pinned, if it guards no interface any more.
func (e *Engine) endOlderLocked() error {
	dir := e.older.dir
	left, err := filepath.Glob(filepath.Join(dir, "[lf]i*-*-*")) // links and filters
	if err != nil || len(left) > 0 {
		return err
	}
	return errors.Join(e.carryRest(dir), clearDir(dir), e.dropOlder(dir))
}
