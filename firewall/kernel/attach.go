package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// attachment is the hooks of one interface.
type attachment struct {
	index   uint32
	framing framing
	links   [2]link.Link
	// Where the kernel has no tcx: tc filters, which last until they are deleted, and pins of their
	// programs, by which the next engine knows them.
	filters  [2]bool
	programs [2]ebpf.ProgramID // of the filters, 0 if an earlier engine has set them
	unpinned [2]bool           // the pin of the link or filter could not be made yet
	peer     link.Link         // at the inner end of a pod's netkit, see netkit.go, or nil
}

// hook names how the packets come to the programs.
func (a *attachment) hook() string {
	if a.filters[0] {
		return "clsact"
	}
	return "tcx"
}

// The two directions of an attachment.
var directions = [2]struct {
	name   string
	attach ebpf.AttachType
}{{"in", ebpf.AttachTCXIngress}, {"out", ebpf.AttachTCXEgress}}

// hookPins is the pattern of the names of pinned links and filters.
const hookPins = "[lf]i*-*-*"

func (e *Engine) linkPath(index uint32, direction int) string {
	return filepath.Join(e.dir, fmt.Sprintf("link-%d-%s", index, directions[direction].name))
}

// Attach hooks an interface, so that its packets are evaluated, and returns the name of the hook,
// "tcx" or "clsact". An interface that is attached already stays so, by the programs for the frames
// that it has by now; if another interface has its index, that one is attached. After ErrUnpinned
// it is attached until this process ends.
func (e *Engine) Attach(index uint32) (hook string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.tickLocked(); err != nil {
		return "", err
	}
	if err := e.takeHooksLocked(); err != nil {
		return "", fmt.Errorf("take the hooks of a previous Weir over: %w", err)
	}
	if a := e.links[index]; a != nil {
		err := e.reattachLocked(a)
		if err == nil {
			err = e.completeLocked(a)
		}
		if err == nil {
			err = e.followPeerLocked(index)
		}
		if !errors.Is(err, errDefunct) {
			return a.hook(), cmp.Or(errors.Join(err, e.putNICLocked(index), e.putUppersLocked()),
				e.pinHooksLocked(a))
		}
		if err := e.dropLocked(a); err != nil {
			return "", err
		}
	}
	i, err := linkAt(index)
	if err != nil {
		return "", fmt.Errorf("attach to interface %d: %w", index, err)
	}
	f, err := framingOf(i)
	if err != nil {
		return "", fmt.Errorf("attach to %s: %w", i.Name, err)
	}
	a := &attachment{index: index, framing: f}
	for d := range directions {
		if err := e.attachLocked(a, d); err != nil {
			return "", errors.Join(fmt.Errorf("attach to %s %s: %w", i.Name, directions[d].name,
				err), e.detach(a))
		}
	}
	e.links[index] = a
	unpinned := e.pinHooksLocked(a) // before those of others go
	return a.hook(), cmp.Or(errors.Join(e.putNICLocked(index), e.replaceOthers(index),
		e.followPeerLocked(index), e.putUppersLocked()), unpinned)
}

// reattachLocked checks whether an attachment belongs to the interface that has the index now;
// errDefunct if it does not, or if the frames of that are not known. Filters do not show it: they
// are set again.
func (e *Engine) reattachLocked(a *attachment) error {
	if err := a.sound(); err != nil {
		return err
	}
	i, err := linkAt(a.index)
	if errors.Is(err, nl.ErrNoLink) {
		return errDefunct
	}
	if err != nil {
		return err
	}
	f, err := framingOf(i)
	if err != nil { // Attach returns it
		return errDefunct
	}
	return e.reframeLocked(a, f)
}

// tickLocked starts the kernel's sweep of the state table. It continues without this process as
// long as the maps are pinned.
func (e *Engine) tickLocked() error {
	if e.ticking {
		return nil
	}
	for try := 0; ; try++ {
		c := weirCall{Op: opTick}
		if err := e.call.ask(&c); err != nil {
			return err
		}
		if c.Result >= 0 {
			e.ticking = true
			return nil
		}
		if try == tickTries {
			return fmt.Errorf("start the timer of the sweep: %w", unix.Errno(-c.Result))
		}
		time.Sleep(tickPause)
	}
}

// The kernel allocates a timer's memory without waiting, and refuses now and then although it has
// plenty: within a second one of the tries succeeds.
const (
	tickTries = 100
	tickPause = 10 * time.Millisecond
)

// requestTimeout is how long one request about an interface may take: a process that keeps the
// kernel's rtnl lock busy must not make the agent look dead. The caller retries what fails.
const requestTimeout = 5 * time.Second

// openNetlink connects for such requests. Many are made under locks that the watchdog looks at.
func openNetlink() (*nl.Conn, error) { return nl.OpenWithin(nil, requestTimeout) }

// linkAt asks for one interface: the standard library lists all of them.
func linkAt(index uint32) (nl.Link, error) {
	c, err := openNetlink()
	if err != nil {
		return nl.Link{}, err
	}
	defer c.Close()
	return c.LinkByIndex(int(index))
}

func (e *Engine) attachLocked(a *attachment, direction int) error {
	if e.noTCX {
		return e.filterLocked(a, direction)
	}
	p, err := e.programLocked(a.framing, direction)
	if err != nil {
		return err
	}
	anchor := link.Head()
	if a.index == loopback && direction == 1 && e.local != nil && e.local.link != nil {
		anchor = link.AfterLink(e.local.link)
	}
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: int(a.index), Program: p, Attach: directions[direction].attach,
		Anchor: anchor,
	})
	if errors.Is(err, link.ErrNotSupported) {
		e.noTCX = true
		return e.filterLocked(a, direction)
	}
	if err != nil {
		return err
	}
	a.links[direction], a.unpinned[direction] = l, true
	return nil
}

// Detach stops evaluating the packets of an interface, also by an engine of another layout. An
// interface that is not attached, or is gone, is not an error.
func (e *Engine) Detach(index uint32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.links[index]
	if a == nil {
		return e.detachOthersLocked(index)
	}
	return e.dropLocked(a)
}

// dropLocked ends an attachment. One that cannot be ended stays in the list, for the next try.
func (e *Engine) dropLocked(a *attachment) error {
	delete(e.links, a.index)
	// Before the hooks go: the lower devices evaluate its frames from now on.
	err := errors.Join(e.putUppersLocked(), e.putNICLocked(a.index), e.detach(a))
	if err != nil {
		e.links[a.index] = a
	}
	return err
}

// detach undoes what was done for an attachment.
func (e *Engine) detach(a *attachment) error {
	errs := []error{e.dropPeer(a)}
	if e.dir != "" {
		for d := range directions {
			errs = append(errs, removeIfThere(e.linkPath(a.index, d)))
		}
	}
	errs = append(errs, e.unfilter(a), a.close(true))
	return errors.Join(errs...)
}

// close closes the links; with detach it also ends them.
func (a *attachment) close(detach bool) error {
	errs := []error{a.closePeer(detach)}
	for d, l := range a.links {
		if l == nil {
			continue
		}
		if detach {
			// The kernel has let go already when the interface is gone.
			if err := l.Detach(); err != nil && !errors.Is(err, os.ErrNotExist) && !gone(err) {
				errs = append(errs, fmt.Errorf("detach from interface %d %s: %w", a.index,
					directions[d].name, err))
			}
		}
		errs = append(errs, l.Close())
		a.links[d] = nil
	}
	return errors.Join(errs...)
}

// openLinks opens the pinned links, and leaves them as they are until the first Load. Those of
// interfaces that are gone become defunct. Any other error ends the start: an interface that cannot
// be examined is still guarded.
func (e *Engine) openLinks() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	found, err := pinned(e.dir, "link")
	if err != nil {
		return err
	}
	filtered, err := pinned(e.dir, "filter")
	if err != nil || len(found)+len(filtered) == 0 {
		return err
	}
	c, err := nl.Open(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	e.guarded = true
	for index := range filtered {
		a := &attachment{index: index, filters: [2]bool{true, true}}
		if err := e.openLinkLocked(c, a); err != nil {
			return err
		}
	}
	for index := range found {
		if filtered[index] {
			continue
		}
		if err := e.openLinkLocked(c, &attachment{index: index}); err != nil {
			return err
		}
	}
	return nil
}

// openLinkLocked opens what is pinned of one interface.
func (e *Engine) openLinkLocked(c *nl.Conn, a *attachment) error {
	i, err := c.LinkByIndex(int(a.index))
	if err == nil {
		a.framing, err = framingOf(i)
		switch {
		case err != nil: // an earlier build misread its frames: Attach returns the error
			err = errDefunct
		case !a.filters[0]:
			err = e.loadLinks(a)
		}
	}
	if err == nil {
		err = e.openPeer(a)
	}
	switch {
	case err == nil:
		e.links[a.index] = a
		return nil
	case errors.Is(err, nl.ErrNoLink) || errors.Is(err, errDefunct) ||
		errors.Is(err, os.ErrNotExist):
		e.defunct = append(e.defunct, a)
		return nil
	case fewDescriptors(err):
		err = fmt.Errorf("%w (raise the limit of open files: ulimit -n)", err)
	}
	return errors.Join(fmt.Errorf("take over interface %d: nothing was changed: %w", a.index, err),
		a.close(false))
}

// errDefunct: the interface of a link is gone. Another one may have its index by now.
var errDefunct = errors.New("the link is defunct")

// sound returns errDefunct when the links are not those of the interface that has the index now.
func (a *attachment) sound() error {
	for _, l := range a.links {
		if l == nil {
			continue
		}
		info, err := l.Info()
		if err != nil {
			return err
		}
		if tcx := info.TCX(); tcx == nil || tcx.Ifindex != a.index {
			return errDefunct
		}
	}
	return nil
}

// takeLinksLocked updates the links of an earlier engine to the current programs.
func (e *Engine) takeLinksLocked() error {
	if len(e.links) == 0 {
		return nil
	}
	if err := e.tickLocked(); err != nil {
		return err
	}
	ids := programIDs{}
	for _, a := range e.links {
		for d := range directions {
			p, err := e.programLocked(a.framing, d)
			if a.filters[d] {
				if err = e.filterLocked(a, d); gone(err) { // the interface vanished meanwhile
					err = nil
				}
			} else if err == nil && a.links[d] != nil {
				err = ids.update(a.links[d], p)
			}
			if err != nil {
				return fmt.Errorf("update the program of interface %d %s: %w", a.index,
					directions[d].name, err)
			}
		}
		if err := e.takePeerLocked(a, ids); err != nil {
			return err
		}
	}
	return nil
}

// programIDs has the kernel's ids of programs. Program.Info copies a whole program out of the
// kernel, 1.5 ms each: with twelve pods a start that asked for each link would take 35 ms more.
type programIDs map[*ebpf.Program]ebpf.ProgramID

// of returns the id of a program.
func (ids programIDs) of(p *ebpf.Program) (ebpf.ProgramID, error) {
	id, known := ids[p]
	if known {
		return id, nil
	}
	info, err := p.Info()
	if err != nil {
		return 0, err
	}
	if id, known = info.ID(); !known { // kernels before 4.13
		return 0, errors.New("the kernel names no id of a program")
	}
	ids[p] = id
	return id, nil
}

// update gives a link a program, if it has another one. An interface that is gone by now needs
// none.
func (ids programIDs) update(l link.Link, p *ebpf.Program) error {
	has, err := l.Info()
	if err != nil {
		return err
	}
	want, err := ids.of(p)
	if err != nil {
		return err
	}
	if want == has.Program {
		return nil
	}
	if err := l.Update(p); err != nil && !gone(err) {
		return err
	}
	return nil
}

// Guarded reports whether the engine that was taken over was attached to an interface.
func (e *Engine) Guarded() bool { return e.guarded }

// Attached returns the indexes of the interfaces whose packets are evaluated.
func (e *Engine) Attached() []uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.links))
}

// Hooked returns the indexes of the interfaces that have hooks or had them before they went, of
// this engine or one of another layout.
func (e *Engine) Hooked() ([]uint32, error) {
	all := e.Attached()
	if e.dir == "" {
		return all, nil
	}
	others, err := otherLayouts(e.dir)
	for _, dir := range others {
		for _, kind := range []string{"link", "filter"} {
			found, bad := pinned(dir, kind)
			all, err = slices.AppendSeq(all, maps.Keys(found)), errors.Join(err, bad)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// removeLinks detaches what is pinned below dir.
func removeLinks(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "link-*-*"))
	if err != nil {
		return err
	}
	errs := []error{removePeers(dir)}
	for _, p := range paths {
		errs = append(errs, removeLink(p))
	}
	return errors.Join(errs...)
}

// removeLink detaches a pinned link and removes the pin.
func removeLink(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil { // whatever it is, it is removed
		return removeIfThere(path)
	}
	err = l.Detach()
	if gone(err) {
		err = nil
	}
	return errors.Join(err, l.Close(), removeIfThere(path))
}
