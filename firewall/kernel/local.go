package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/internal/nl"
)

// local is what looks at packets of the host to itself while ports are published: a link, or a
// filter where the kernel has no tcx.
type local struct {
	link    link.Link      // nil: a filter
	program ebpf.ProgramID // of the filter
}

// Pins of the loopback's link, or of the program of its filter.
const (
	localLink   = "local"
	localFilter = "localfilter"
)

// localName is the name of the program, and of its filter.
const localName = "weir_local"

// takeOwn lets the loopback take what comes in there from an address of the host's own. It does
// that anyway with what never left it. Answers of pods to the host come back that way. It stays
// set; `weir down` restores it, as it does ip_forward.
func takeOwn() error {
	for _, key := range []string{"accept_local", "route_localnet"} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf/lo", key), []byte("1"),
			0); err != nil {
			return fmt.Errorf("published ports: %w", err)
		}
	}
	return nil
}

// attachLocalLocked begins to look at what the host sends to itself.
func (e *Engine) attachLocalLocked() error {
	if e.local != nil {
		return nil
	}
	if err := takeOwn(); err != nil {
		return err
	}
	if err := e.needLocked("weir_local"); err != nil {
		return err
	}
	if e.noTCX {
		return e.filterLocalLocked()
	}
	if e.dir != "" {
		// An engine may have died before it let go of a hook that it no longer needed. The kernel
		// does not take a program twice, and ends a link later than its pin, unless it is detached.
		if err := removeLink(filepath.Join(e.dir, localLink)); err != nil {
			return fmt.Errorf("remove the link of the loopback of an earlier engine: %w", err)
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: loopback, Program: e.objects.WeirLocal,
		Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
	if errors.Is(err, link.ErrNotSupported) {
		e.noTCX = true
		return e.filterLocalLocked()
	}
	if err != nil {
		return fmt.Errorf("attach to the loopback: %w", err)
	}
	if e.dir != "" {
		if err := l.Pin(filepath.Join(e.dir, localLink)); err != nil {
			return errors.Join(fmt.Errorf("pin the link of the loopback: %w", err), l.Close())
		}
	}
	e.local = &local{link: l}
	return nil
}

func (e *Engine) filterLocalLocked() error {
	id, err := e.programIDs.of(e.objects.WeirLocal)
	if err != nil {
		return err
	}
	c, err := openNetlink()
	if err != nil {
		return err
	}
	defer c.Close()
	if e.dir != "" {
		program, err := e.objects.WeirLocal.Clone() // a pin belongs to an object
		if err != nil {
			return err
		}
		defer program.Close()
		path := filepath.Join(e.dir, localFilter)
		if err := errors.Join(removeIfThere(path), program.Pin(path)); err != nil {
			return err
		}
	}
	if err := c.SetFilter(loopback, nl.BeforeEgress, e.objects.WeirLocal.FD(),
		localName); err != nil {
		return fmt.Errorf("attach to the loopback: %w", err)
	}
	e.local = &local{program: id}
	return nil
}

func (e *Engine) detachLocalLocked() error {
	l := e.local
	if l == nil {
		return nil
	}
	if l.link == nil {
		if err := deleteLocalFilter(); err != nil {
			return err // the pin says that the filter is there, for the next try and for Remove
		}
		e.local = nil
		if e.dir == "" {
			return nil
		}
		return removeIfThere(filepath.Join(e.dir, localFilter))
	}
	e.local = nil
	var err error
	if e.dir != "" {
		err = removeIfThere(filepath.Join(e.dir, localLink))
	}
	return errors.Join(err, l.link.Detach(), l.link.Close())
}

func deleteLocalFilter() error {
	c, err := openNetlink()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.DeleteFilter(loopback, nl.BeforeEgress)
}

// removeLocal takes the hook of the loopback away whose pins lie in dir.
func removeLocal(dir string) error {
	filter := filepath.Join(dir, localFilter)
	if _, err := os.Stat(filter); err == nil {
		if err := deleteLocalFilter(); err != nil {
			return err
		}
	}
	if err := errors.Join(removeIfThere(filter), removeLink(filepath.Join(dir,
		localLink))); err != nil {
		return fmt.Errorf("detach from the loopback: %w", err)
	}
	return nil
}

// releaseLocalLocked lets go of the hook, which stays when it is pinned.
func (e *Engine) releaseLocalLocked() error {
	if e.dir == "" {
		return e.detachLocalLocked()
	}
	l := e.local
	if e.local = nil; l == nil || l.link == nil {
		return nil
	}
	return l.link.Close()
}

// resumeLocalLocked gives the pinned hook of the loopback the present program. One that an engine
// did not let go of before it died, after the last port, is removed.
func (e *Engine) resumeLocalLocked() error {
	if e.dir == "" || e.local != nil {
		return nil
	}
	if e.forwarding.Published == e.forwarding.Forwards {
		return removeLocal(e.dir)
	}
	l, err := link.LoadPinnedLink(filepath.Join(e.dir, localLink), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return e.attachLocalLocked()
	}
	if err != nil {
		return fmt.Errorf("take over the link of the loopback: %w", err)
	}
	if err = e.needLocked("weir_local"); err == nil {
		err = programIDs{}.update(l, e.objects.WeirLocal)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("update the program of the loopback: %w", err), l.Close())
	}
	e.local = &local{link: l}
	return nil
}
