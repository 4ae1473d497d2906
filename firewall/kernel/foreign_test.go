package kernel

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// strange loads a program of another owner, which leaves each packet to the next one.
func strange(t *testing.T, kind ebpf.ProgramType, name string, verdict int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, Name: name, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// foreign returns what the engine finds at the server's NIC, without the numbers.
func (g *pairLab) foreign(t *testing.T) (all []string) {
	t.Helper()
	var found []Foreign
	if err := g.server.Do(func() (err error) {
		found, err = g.engine.Foreign()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Index != g.index || (f.Program != 0) != (f.Hook != "nftables") ||
			(f.Link != 0) != (f.Hook == "tcx") {
			t.Errorf("%+v", f)
		}
		all = append(all, fmt.Sprint(f.Hook, " ", f.Name, " ", f.Out, " ", f.Weir))
	}
	return all
}

// attachBefore puts programs of another owner at the server's NIC: of XDP, and of tcx before and
// behind what is there.
func (g *pairLab) attachBefore(t *testing.T) {
	t.Helper()
	keep := func(l link.Link, err error) error {
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}
	if err := g.server.Do(func() error {
		if err := keep(link.AttachXDP(link.XDPOptions{Interface: int(g.index),
			Program: strange(t, ebpf.XDP, "their_xdp", 2),
			Flags:   link.XDPGenericMode})); err != nil {
			return err
		}
		for name, at := range map[string]link.Anchor{"their_first": link.Head(),
			"their_last": link.Tail()} {
			for _, d := range directions {
				if err := keep(link.AttachTCX(link.TCXOptions{Interface: int(g.index),
					Program: strange(t, ebpf.SchedCLS, name, -1), Attach: d.attach,
					Anchor: at})); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestForeignPrograms: programs of others that packets meet before Weir's are found, those behind
// are not.
func TestForeignPrograms(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	if all := g.foreign(t); len(all) > 0 {
		t.Errorf("nothing is there: %v", all)
	}
	g.attachBefore(t)
	want := []string{"xdp their_xdp false false", "tcx their_first false false",
		"tcx their_first true false"}
	if all := g.foreign(t); !slices.Equal(all, want) {
		t.Errorf("with tcx: %v, not %v", all, want)
	}
}

// TestForeignFilters: the same where Weir's own hooks are filters.
func TestForeignFilters(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.byFilters(t)
	pin := filepath.Join(nstest.Bpffs(t), "theirs")
	if err := strange(t, ebpf.SchedCLS, "theirs", -1).Pin(pin); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"ingress pref 7", "ingress pref 300", "egress pref 3"} {
		g.tc(t, "filter add dev eth0 "+at+" bpf da object-pinned "+pin)
	}
	want := []string{"filter theirs:[*fsobj] false false", "filter theirs:[*fsobj] true false"}
	if all := g.foreign(t); !slices.Equal(all, want) {
		t.Errorf("found %v, not %v", all, want)
	}
	g.answers(t, "behind them", "80")
}

// TestForeignChains: chains of nftables at egress are before Weir's programs, in the order of their
// priority. Those at ingress, of other interfaces, and that no hook calls are not.
func TestForeignChains(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.server.IP("link add other type veth")
	for _, line := range []string{"add table netdev theirs", "add chain netdev theirs called",
		"add chain netdev theirs second { type filter hook egress device eth0 priority 5; }",
		"add chain netdev theirs first " +
			"{ type filter hook egress devices = { other, eth0 } priority -7; }",
		"add chain netdev theirs third { type filter hook egress device other priority 0; }",
		"add chain netdev theirs in { type filter hook ingress device eth0 priority 0; }"} {
		if out, err := g.server.Command("nft", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v, %s", line, err, out)
		}
	}
	g.attachBefore(t)
	want := []string{"xdp their_xdp false false", "tcx their_first false false",
		"nftables theirs first true false", "nftables theirs second true false",
		"tcx their_first true false"}
	if all := g.foreign(t); !slices.Equal(all, want) {
		t.Errorf("found %q, not %q", all, want)
	}
}

// theirLocal puts a program of another owner before the loopback's hook, with its name.
func (g *pairLab) theirLocal(t *testing.T) {
	t.Helper()
	theirs := strange(t, ebpf.SchedCLS, localName, -1)
	g.must(t, g.server.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: loopback, Program: theirs,
			Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}))
}

// TestForeignLocal: a program of another owner at the loopback is not taken for the hook of
// published ports because it has the name of that.
func TestForeignLocal(t *testing.T) {
	t.Parallel()
	for _, filters := range []bool{false, true} {
		g := newPairLab(t, webRules)
		g.engine.noTCX = filters
		g.must(t, g.server.Do(func() error {
			if _, err := g.engine.Attach(loopback); err != nil {
				return err
			}
			g.engine.mu.Lock()
			defer g.engine.mu.Unlock()
			return g.engine.attachLocalLocked()
		}))
		if all := g.foreign(t); len(all) > 0 {
			t.Errorf("by filters %v: nothing is there: %v", filters, all)
		}
		g.must(t, g.engine.Close())
		g.open(t)
		if all := g.foreign(t); len(all) > 0 {
			t.Errorf("by filters %v, taken over: nothing is there: %v", filters, all)
		}
		if filters {
			g.theirFilter(t, loopback, nl.BeforeEgress, localName)
		} else {
			g.theirLocal(t)
		}
		var found []Foreign
		g.must(t, g.server.Do(func() (err error) {
			found, err = g.engine.Foreign()
			return err
		}))
		if len(found) != 1 || found[0].Index != loopback || found[0].Name != localName {
			t.Errorf("by filters %v: found %+v", filters, found)
		}
	}
}

// TestAnotherWeir: an engine finds the hooks of another one whose pins are not beside its own,
// whether they are before its own or behind.
func TestAnotherWeir(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	var other *Engine
	if err := g.server.Do(func() (err error) {
		other, err = openShared(t, Config{Dir: filepath.Join(nstest.Bpffs(t), "other"),
			Options: firewall.DefaultOptions()})
		if err == nil {
			t.Cleanup(func() { other.Close() })
			err = other.Load(compile(t, webRules))
		}
		if err == nil {
			_, err = other.Attach(g.index)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"tcx weir_in false true", "tcx weir_out true true"}
	for range 2 {
		if all := g.foreign(t); !slices.Equal(all, want) {
			t.Errorf("found %v, not %v", all, want)
		}
		g.engine, other = other, g.engine
	}
}
