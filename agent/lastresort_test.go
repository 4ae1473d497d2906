package agent

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// closable is a host with an interface that the last resort can close.
type closable struct {
	*nstest.Node
	t    *testing.T
	link nl.Link
}

func newClosable(t *testing.T) *closable {
	t.Helper()
	lab := nstest.New(t)
	h := &closable{Node: lab.Node("host"), t: t}
	lab.Join(h.Node, "eth0", "10.0.0.1/24", lab.Node("far"), "eth0", "10.0.0.2/24")
	var err error
	if h.link, err = h.Netlink().LinkByName("eth0"); err != nil {
		t.Fatal(err)
	}
	return h
}

// do calls f in the host's namespace. An error fails the test.
func (h *closable) do(f func() error) {
	h.t.Helper()
	if err := h.Do(f); err != nil {
		h.t.Fatal(err)
	}
}

// close has the last resort close the host.
func (h *closable) close() {
	h.t.Helper()
	h.do(func() error {
		_, err := kernel.BlockAll(func(string) bool { return true }, true)
		return err
	})
	h.wantFilter("closed", "weir_last")
}

// wantFilter compares the name of Weir's filter at the ingress of the interface.
func (h *closable) wantFilter(when, want string) {
	h.t.Helper()
	if got, err := h.Netlink().FilterAt(h.link.Index, nl.Ingress); err != nil || got.Name != want {
		h.t.Errorf("%s: the filter is %q, want %q, %v", when, got.Name, want, err)
	}
}

// TestDownOpensTheHost: without an agent, and without anything that one has left, down takes the
// last resort away.
func TestDownOpensTheHost(t *testing.T) {
	h := newClosable(t)
	p := Paths{Root: t.TempDir()}
	for _, keep := range []bool{true, false} {
		h.close()
		h.do(func() error { return Down(p, keep) })
		h.wantFilter("down", "")
	}
}

// TestStartOpensTheHost: a start takes the last resort away also where one before it has put its
// hooks in place and died then.
func TestStartOpensTheHost(t *testing.T) {
	h := newClosable(t)
	p := Paths{Root: t.TempDir(), Bpffs: nstest.Bpffs(t)}
	start := func() error {
		n := newNode(Config{Paths: p, Settings: DefaultSettings(),
			Log: slog.New(slog.DiscardHandler)}, false)
		n.links.Report(nl.Event{Kind: nl.LinkSet, Link: h.link})
		if err := n.engine.Open(kernel.Config{Dir: p.Pins(),
			Options: firewall.DefaultOptions()}); err != nil {
			return err
		}
		return errors.Join(n.begin(t.Context()), n.rules.Close(), n.engine.Close())
	}
	h.do(start)
	if !kernel.Guards(p.Pins()) {
		t.Fatal("this test could not fail: no hook is pinned")
	}
	h.close()
	h.do(start)
	h.wantFilter("started", "")
}
