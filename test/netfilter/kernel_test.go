package netfilter

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/netfilter"
)

// kernelPackets is how many packets each rule set meets in the kernel.
const kernelPackets = 300

// TestKernel loads the imported rule sets into the kernel, where packets get the verdicts of the
// user-space engine. Sets that ask for routes are left out: the kernel has its own.
func TestKernel(t *testing.T) {
	nstest.RequireRoot(t)
	names, err := filepath.Glob(sets + "/*.source")
	if err != nil || len(names) == 0 {
		t.Fatalf("no rule sets in %s: %v", sets, err)
	}
	h := &host{devices: append([]device{}, topology...)}
	o := firewall.DefaultOptions()
	o.MaxPerSource = 0
	e, err := kernel.Open(kernel.Config{Options: o})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer e.Close()
	var ifs []firewall.Interface
	for i, d := range h.devices {
		ifs = append(ifs, firewall.Interface{Index: uint32(i + 2), Name: d.name,
			Addrs: d.networks, Router6: true})
	}
	if err := e.SetInterfaces(ifs); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, name := range names {
		result, err := netfilter.Import(readSet(t, name), ofHost())
		if err != nil {
			t.Fatal(err)
		}
		lift(result)
		p, err := rule.Compile(result.Rules, rule.CompileOptions{Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		tables := map[string][]rule.TableEntry{}
		for name, table := range result.Rules.Tables {
			tables[name] = table.Entries()
		}
		if err := e.Replace(p, tables); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all := func(firewall.State) bool { return true }
		if _, err := e.DeleteStates(all); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(result.Text, "verrevpath") {
			continue
		}
		w := newWeir(t, h, result)
		inKernel := *w
		inKernel.evaluate = e.Evaluate
		w.now = 1 << 40 // of one clock, which continues from set to set
		w.now += time.Duration(compared) * time.Second
		inKernel.now = w.now
		g := newGenerator(19, h.devices, result)
		for range kernelPackets {
			s := g.next()
			soft, why := w.meets(&s)
			kernel, whyKernel := inKernel.meets(&s)
			if soft != kernel {
				t.Fatalf("%s: %s: in user space %v (%s), in the kernel %v (%s)\n%s", name,
					describe(&s), soft, why, kernel, whyKernel, result.Text)
			}
			if soft {
				g.passed(&s)
			} else {
				g.refused(&s)
			}
			compared++
		}
	}
	if compared < 10*kernelPackets {
		t.Errorf("only %d packets were compared", compared)
	}
}
