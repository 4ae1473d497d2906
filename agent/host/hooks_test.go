package host

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

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

func (noTunnel) Owns(string) bool   { return false }
func (noTunnel) Hooked(string) bool { return false }
func (noTunnel) Index() uint32      { return 0 }

// TestHooksOfInterfacesThatWent: an interface that goes between the moment in which the engine took
// its hooks over and that in which the node lists the interfaces leaves no pins, like one that is
// not to be guarded any more. The others keep theirs.
func TestHooksOfInterfacesThatWent(t *testing.T) {
	nstest.Root(t)
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
	if got := slices.Sorted(slices.Values(e.Attached())); !slices.Equal(got, want) {
		t.Errorf("attached to %v, not %v", got, want)
	}
	if pins, err := filepath.Glob(config.Dir + "/*/link-*"); len(pins) != 4 || err != nil {
		t.Errorf("pins %v, %v", pins, err)
	}
}
