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
		if f.Index != g.index || f.Program == 0 ||
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
