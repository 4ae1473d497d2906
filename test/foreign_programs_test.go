package test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	attach "github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/agent/api"
)

// xdpPass attaches a program of XDP that lets everything pass to the server's interface.
func (p *pair) xdpPass(t *testing.T, name string) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Name: name, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if err := p.server.Do(func() error {
		l, err := attach.AttachXDP(attach.XDPOptions{Program: program, Flags: attach.XDPGenericMode,
			Interface: p.server.Link("eth0").Index})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestStatusShowsForeignPrograms: the status names the programs that packets meet before the rules.
// The node stays healthy.
func TestStatusShowsForeignPrograms(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", webRules(t))
	if out := p.weir("status"); strings.Contains(out, "before the rules at") {
		t.Errorf("without one: %s", out)
	}
	p.xdpPass(t, "their_xdp")
	p.server.Run("tc", "qdisc", "add", "dev", "eth0", "clsact") // or it would take ten seconds
	eventually(t, "the status has it", func() error {
		if out := p.weir("status"); !strings.Contains(out,
			"before the rules at eth0: xdp in their_xdp (id ") {
			return errors.New(out)
		}
		return nil
	})
	var s api.Status
	p.json(&s, "status")
	if !s.Healthy || len(s.Interfaces) != 1 || len(s.Interfaces[0].Before) != 1 {
		t.Fatalf("%+v", s)
	}
	b := s.Interfaces[0].Before[0]
	if b.Program == 0 || b != (api.Before{Hook: "xdp", Direction: "in", Name: "their_xdp",
		Program: b.Program}) {
		t.Errorf("%+v", b)
	}
}

// TestHiddenWeir: an agent starts without the pins of the one before, which are hidden. Its status
// tells that the hooks of that one decide, too. An agent that finds them again takes them over.
func TestHiddenWeir(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", webRules(t))
	p.stop()
	away := p.bpffs + "-away"
	if err := os.Rename(p.bpffs, away); err != nil {
		t.Fatal(err)
	}
	p.start("--iface", "eth0", "--rules", webRules(t))
	out, _, err := p.try("status")
	if err == nil || !strings.Contains(out, "another Weir decides, too: eth0 in, eth0 out") ||
		!strings.Contains(out, "bpftool link detach id ") {
		t.Errorf("%v, %s", err, out)
	}
	p.stop()
	if err := errors.Join(os.RemoveAll(p.bpffs), os.Rename(away, p.bpffs)); err != nil {
		t.Fatal(err)
	}
	p.start("--iface", "eth0", "--rules", webRules(t))
	eventually(t, "one Weir is left", func() error {
		if out, _, err := p.try("status"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}
