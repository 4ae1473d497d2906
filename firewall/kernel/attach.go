package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// attachment is what judges the packets of one interface.
type attachment struct {
	index uint32
	l3    bool // frames without Ethernet headers
	links [2]link.Link
	// Where the kernel has no tcx: tc filters, which last until they are deleted, and pins of their programs, by which the next engine knows them.
	filters [2]bool
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

// program returns the program for a direction of an interface.
func (e *Engine) program(l3 bool, direction int) *ebpf.Program {
	o := &e.objects
	if l3 {
		return [2]*ebpf.Program{o.WeirInL3, o.WeirOutL3}[direction]
	}
	return [2]*ebpf.Program{o.WeirIn, o.WeirOut}[direction]
}

func (e *Engine) linkPath(index uint32, direction int) string {
	return filepath.Join(e.dir, fmt.Sprintf("link-%d-%s", index, directions[direction].name))
}

// Attach begins to judge the packets of an interface and returns the name of the hook, "tcx" or "clsact". An interface that is attached
// already stays so.
func (e *Engine) Attach(index uint32) (hook string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.links[index]; a != nil {
		return a.hook(), nil
	}
	i, err := linkAt(index)
	if err != nil {
		return "", fmt.Errorf("attach to interface %d: %w", index, err)
	}
	if err := e.tickLocked(); err != nil {
		return "", err
	}
	a := &attachment{index: index, l3: !hasEthernet(i)}
	for d := range directions {
		if err := e.attachLocked(a, d); err != nil {
			return "", errors.Join(fmt.Errorf("attach to %s %s: %w", i.Name, directions[d].name, err), e.detach(a))
		}
	}
	e.links[index] = a
	return a.hook(), errors.Join(e.putCardLocked(index), e.replaceOthers(index))
}

// tickLocked has the kernel begin to sweep the state table. It goes on without us as long as the maps are pinned.
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

// A timer's memory is asked for without waiting, and the kernel refuses now and then although it has plenty: a second later it has not refused each time.
const (
	tickTries = 100
	tickPause = 10 * time.Millisecond
)

// linkAt asks for one interface: the standard library lists all of them.
func linkAt(index uint32) (nl.Link, error) {
	c, err := nl.Open(nil)
	if err != nil {
		return nl.Link{}, err
	}
	defer c.Close()
	return c.LinkByIndex(int(index))
}

// hasEthernet reports whether frames of an interface have Ethernet headers. The loopback's have, of zeros.
func hasEthernet(l nl.Link) bool {
	return len(l.HardwareAddr) == 6 || l.Loopback
}

func (e *Engine) attachLocked(a *attachment, direction int) error {
	if e.noTCX {
		return e.filterLocked(a, direction)
	}
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: int(a.index), Program: e.program(a.l3, direction), Attach: directions[direction].attach, Anchor: link.Head(),
	})
	if errors.Is(err, link.ErrNotSupported) {
		e.noTCX = true
		return e.filterLocked(a, direction)
	}
	if err != nil {
		return err
	}
	a.links[direction] = l
	if e.dir == "" {
		return nil
	}
	path := e.linkPath(a.index, direction)
	if err := removeIfThere(path); err != nil { // of an interface that had this index before
		return err
	}
	return l.Pin(path)
}

// Detach stops judging the packets of an interface. One that is not attached, or is gone, is no error.
func (e *Engine) Detach(index uint32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.links[index]
	if a == nil {
		return nil
	}
	delete(e.links, index)
	return errors.Join(e.putCardLocked(index), e.detach(a))
}

// detach undoes what was done for an attachment.
func (e *Engine) detach(a *attachment) error {
	var errs []error
	if e.dir != "" {
		for d := range directions {
			errs = append(errs, removeIfThere(e.linkPath(a.index, d)))
		}
	}
	errs = append(errs, e.unfilter(a), a.close(true))
	return errors.Join(errs...)
}

// close lets go of the links; with detach it also ends them.
func (a *attachment) close(detach bool) error {
	var errs []error
	for d, l := range a.links {
		if l == nil {
			continue
		}
		if detach {
			// The kernel has let go already when the interface is gone.
			if err := l.Detach(); err != nil && !errors.Is(err, os.ErrNotExist) && !gone(err) {
				errs = append(errs, fmt.Errorf("detach from interface %d %s: %w", a.index, directions[d].name, err))
			}
		}
		errs = append(errs, l.Close())
		a.links[d] = nil
	}
	return errors.Join(errs...)
}

// resumeLinks takes the pinned links over: each gets the present program. Links of interfaces that are gone are dropped.
func (e *Engine) resumeLinks() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	found, err := pinned(e.dir, "link")
	if err != nil {
		return err
	}
	if err := e.tickLocked(); err != nil {
		return err
	}
	filtered, err := e.resumeFilters()
	if err != nil {
		return err
	}
	for index := range found {
		if filtered[index] {
			continue
		}
		a := &attachment{index: index}
		i, err := linkAt(index)
		if err == nil {
			a.l3 = !hasEthernet(i)
			err = e.resumeLocked(a)
		}
		if err != nil {
			if err := e.detach(a); err != nil {
				return err
			}
			continue
		}
		e.links[index] = a
	}
	return nil
}

func (e *Engine) resumeLocked(a *attachment) error {
	for d := range directions {
		l, err := link.LoadPinnedLink(e.linkPath(a.index, d), nil)
		if err != nil {
			return err
		}
		a.links[d] = l
		info, err := l.Info()
		if err != nil {
			return err
		}
		if tcx := info.TCX(); tcx == nil || tcx.Ifindex != a.index {
			return fmt.Errorf("interface %d: the link is defunct", a.index)
		}
		if err := l.Update(e.program(a.l3, d)); err != nil {
			return fmt.Errorf("update the program of interface %d: %w", a.index, err)
		}
	}
	return nil
}

// removeLinks detaches what is pinned below dir.
func removeLinks(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "link-*-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range paths {
		errs = append(errs, removeLink(p))
	}
	return errors.Join(errs...)
}

// removeLink detaches a pinned link and takes the pin away.
func removeLink(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil { // what it is does not matter: it goes
		return removeIfThere(path)
	}
	err = l.Detach()
	if gone(err) {
		err = nil
	}
	return errors.Join(err, l.Close(), removeIfThere(path))
}
