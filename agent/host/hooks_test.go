package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/rule"
)

// noTunnel is the tunnel of a node that has none.
type noTunnel struct{}

func (noTunnel) IsUserTunnel(string) bool   { return false }
func (noTunnel) IsKernelTunnel(string) bool { return false }
func (noTunnel) Index() uint32              { return 0 }

// TestHooksOfInterfacesThatWent: an interface goes between the moment in which the engine took its
// hooks over and that in which the node lists the interfaces. It leaves no pins, like one that is
// not to be guarded any more. The others keep theirs. So it is if the earlier engine had another
// layout.
func TestHooksOfInterfacesThatWent(t *testing.T) {
	for _, layout := range []string{"the same layout", "another layout"} {
		t.Run(layout, func(t *testing.T) {
			testHooksOfInterfacesThatWent(t, layout == "another layout")
		})
	}
}

func testHooksOfInterfacesThatWent(t *testing.T, other bool) {
	nstest.RequireRoot(t)
	node := nstest.New(t).Node("host")
	config := kernel.Config{Dir: filepath.Join(nstest.Bpffs(t), "weir"),
		Options: firewall.DefaultOptions()}
	open := func() (e *kernel.Engine) {
		t.Helper()
		err := node.Do(func() (err error) {
			e, err = kernel.Open(config)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Load(enginetest.Compile(t, "add allow ip from any to any",
			rule.CompileOptions{})); err != nil {
			t.Fatal(err)
		}
		return e
	}
	links := map[string]nl.Link{}
	earlier := open()
	for _, name := range []string{"stays", "other", "goes", "tunnel"} {
		out, err := node.Command("ip", "link", "add", name, "type", "veth").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		l, err := node.Netlink().LinkByName(name)
		if err == nil {
			err = node.Do(func() error {
				_, err := earlier.Attach(uint32(l.Index))
				return err
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		links[name] = l
	}
	if err := earlier.Close(); err != nil {
		t.Fatal(err)
	}
	if layout, err := filepath.Glob(config.Dir + "/layout-*"); other {
		if err := errors.Join(err, os.Rename(layout[0], config.Dir+"/layout-0")); err != nil {
			t.Fatal(err)
		}
	}
	e := open()
	defer e.Close()
	if err := node.Netlink().DeleteLink(links["goes"].Index); err != nil {
		t.Fatal(err)
	}
	h := NewHooks(Config{Settings: Settings{Interfaces: []string{"stays"}}, Engine: e,
		Links: NewLinks(), Tunnel: noTunnel{}, Log: slog.New(slog.DiscardHandler),
		Problems: &problem.List{Log: slog.New(slog.DiscardHandler)}})
	for _, name := range []string{"stays", "other"} {
		h.config.Links.Report(nl.Event{Kind: nl.LinkSet, Link: links[name]})
	}
	// A tunnel of the kernel, which an agent with other settings has left.
	left := links["tunnel"]
	left.Kind, left.Alias = nl.WireGuardKind, "weir tunnel /var/lib/weir"
	h.config.Links.Report(nl.Event{Kind: nl.LinkSet, Link: left})
	if err := node.Do(h.DetachOthers); err != nil {
		t.Fatal(err)
	}
	want := []uint32{uint32(links["stays"].Index), uint32(left.Index)}
	slices.Sort(want)
	got, err := e.Hooked()
	if slices.Sort(got); !slices.Equal(got, want) || err != nil {
		t.Errorf("attached to %v, not %v, %v", got, want, err)
	}
	if pins, err := filepath.Glob(config.Dir + "/*/link-*"); len(pins) != 4 || err != nil {
		t.Errorf("pins %v, %v", pins, err)
	}
}

// lateEngine is an engine whose kernel does not answer in time while late is set.
type lateEngine struct {
	Engine
	late     bool
	attached []uint32 // what Attach was called for
	detached []uint32
	stay     error // why hooks cannot be removed
}

func (*lateEngine) SetUppers([]kernel.Upper) error { return nil }

func (e *lateEngine) Attach(index uint32) (string, error) {
	if e.attached = append(e.attached, index); e.late {
		return "", unix.EAGAIN
	}
	return "tcx", nil
}

func (e *lateEngine) Detach(index uint32) error {
	e.detached = append(e.detached, index)
	return e.stay
}

func (*lateEngine) SetInterfaces([]firewall.Interface) error { return nil }
func (*lateEngine) FollowNAT() error                         { return nil }

// hooksOf returns the hooks of a node that guards eth*.
func hooksOf(e *lateEngine, r *Router) *Hooks {
	log := slog.New(slog.DiscardHandler)
	return NewHooks(Config{Settings: Settings{Interfaces: []string{"eth*"}}, Engine: e,
		Links: NewLinks(), Router: r, Tunnel: noTunnel{}, Log: log,
		Problems: &problem.List{Log: log}})
}

// TestReattachWhileTheKernelIsBusy: each request may take seconds, and the watchdog waits for the
// pass. So one that is not answered ends it, and the next pass does the rest.
func TestReattachWhileTheKernelIsBusy(t *testing.T) {
	e := &lateEngine{}
	h := hooksOf(e, &Router{})
	const n = 20
	list := func() {
		for i := 1; i <= n; i++ {
			h.config.Links.Report(nl.Event{Kind: nl.LinkSet,
				Link: nl.Link{Index: i, Name: fmt.Sprint("eth", i), Up: true}})
		}
		h.config.Links.Report(nl.Event{Kind: nl.Synced})
		h.Follow()
	}
	list()
	e.late, e.attached = true, nil
	list() // notifications were lost: any interface may be another one
	if len(e.attached) > 2 {
		t.Errorf("asked for %v", e.attached)
	}
	if !h.Incomplete() {
		t.Error("no other pass follows")
	}
	h.config.Links.Report(nl.Event{Kind: nl.LinkGone, Link: nl.Link{Index: int(e.attached[0])}})
	h.Follow()
	if len(e.detached) != 1 {
		t.Errorf("one that went before it was attached again: detached %v", e.detached)
	}
	e.late, e.attached = false, nil
	h.Follow()
	slices.Sort(e.attached)
	if all := slices.Compact(e.attached); len(all) != n-1 || h.Incomplete() {
		t.Errorf("attached again: %v", all)
	}
}

// TestInterfacesThatCameWhileTheKernelIsBusy: whether the host is a router on an interface that
// came may take a request that is not answered in time. Other passes do not wait for it, one is
// enough for a pass, and later passes do the rest.
func TestInterfacesThatCameWhileTheKernelIsBusy(t *testing.T) {
	node := nstest.New(t).Node("host")
	names := []string{"new0", "new1", "new2"}
	h := hooksOf(&lateEngine{}, NewRouter(""))
	h.config.Router.before.Store(&map[string]string{})
	asked, late := 0, true
	h.config.Router.kind = func(string) (string, error) {
		if asked++; !h.following.TryLock() {
			t.Error("a pod that comes now waits")
		} else {
			h.following.Unlock()
		}
		if late {
			return "", unix.EAGAIN
		}
		return "device", nil
	}
	for i, name := range names {
		out, err := node.Command("ip", "link", "add", name, "type", "veth").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		h.config.Links.Report(nl.Event{Kind: nl.LinkSet,
			Link: nl.Link{Index: i + 1, Name: name}})
	}
	err := node.Do(func() error { h.Follow(); return nil })
	if err != nil || asked != 1 || !h.Incomplete() {
		t.Errorf("asked %d times, another pass follows: %v, %v", asked, h.Incomplete(), err)
	}
	late = false
	err = node.Do(func() error {
		h.Follow()
		for _, name := range names {
			if is := readSysctl(acceptRA(name)); is != routerAcceptsRA {
				t.Errorf("accept_ra of %s is %s", name, is)
			}
		}
		return nil
	})
	if err != nil || h.Incomplete() {
		t.Errorf("behind: %v, %v", h.Incomplete(), err)
	}
}

// TestHooksThatStay: hooks that cannot be removed are a problem until they are gone, or until the
// interface is to be guarded again.
func TestHooksThatStay(t *testing.T) {
	e := &lateEngine{}
	h := hooksOf(e, &Router{})
	step := func(name string, stay bool, problems int) {
		t.Helper()
		if e.stay = nil; stay {
			e.stay = unix.EBUSY
		}
		if name != "" {
			h.config.Links.Report(nl.Event{Kind: nl.LinkSet,
				Link: nl.Link{Index: 7, Name: name, Up: true}})
		} else {
			h.config.Links.Report(nl.Event{Kind: nl.LinkGone, Link: nl.Link{Index: 7}})
		}
		h.Follow()
		if all := h.config.Problems.All(); len(all) != problems ||
			h.Incomplete() != (problems > 0) {
			t.Errorf("%q: problems %v, another pass follows: %v", name, all, h.Incomplete())
		}
	}
	h.config.Links.Report(nl.Event{Kind: nl.Synced})
	step("eth0", false, 0)
	step("other0", true, 1)
	step("other0", true, 1) // nothing has changed
	step("other0", false, 0)
	step("eth0", false, 0)
	step("", true, 1)
	step("", true, 1)
	step("", false, 0)
	step("eth0", false, 0)
	step("other0", true, 1)
	step("eth0", true, 1) // they could not be removed before they were attached again
	step("eth0", true, 0)
	if len(e.detached) != 8 {
		t.Errorf("detached %d times", len(e.detached))
	}
}

// TestDetachWhileTheKernelIsBusy: of many interfaces that went, one whose hooks cannot be removed
// in time is enough for a pass, as in TestReattachWhileTheKernelIsBusy.
func TestDetachWhileTheKernelIsBusy(t *testing.T) {
	e := &lateEngine{}
	h := hooksOf(e, &Router{})
	const n = 20
	for _, kind := range []nl.EventKind{nl.LinkSet, nl.LinkGone} {
		for i := 1; i <= n; i++ {
			h.config.Links.Report(nl.Event{Kind: kind,
				Link: nl.Link{Index: i, Name: fmt.Sprint("eth", i), Up: true}})
		}
		h.config.Links.Report(nl.Event{Kind: nl.Synced})
		h.Follow()
		e.stay = unix.EAGAIN
	}
	h.Follow()
	if len(e.detached) != 2 || !h.Incomplete() {
		t.Errorf("asked for %v in two passes; another one follows: %v", e.detached, h.Incomplete())
	}
	e.stay, e.detached = nil, nil
	h.Follow()
	if len(e.detached) != n || h.Incomplete() {
		t.Errorf("then for %v; another pass follows: %v", e.detached, h.Incomplete())
	}
}
