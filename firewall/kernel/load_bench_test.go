package kernel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// loadRules is a rule file of n rules with a network and a port each, from port on, and one that
// keeps states.
func loadRules(n, port int) string {
	var b strings.Builder
	b.WriteString("add 1 check-state\n")
	for i := range n - 2 {
		fmt.Fprintf(&b, "add %d deny udp from 10.%d.%d.0/24 to any %d\n", 2+i, 1+i/250, i%250,
			port+i)
	}
	b.WriteString("add 60000 allow ip from me to any keep-state\n")
	return b.String()
}

// BenchmarkLoad measures what it takes until 10,000 rules that are all new are in force, and until
// one that is added to them is. It measures the time, and that of the processors, which other work
// prolongs less. Least of some rounds: run with -benchtime 1x.
func BenchmarkLoad(b *testing.B) {
	nstest.RequireRoot(b)
	e, err := Open(Config{Options: firewall.DefaultOptions()})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	defer e.Close()
	names := []string{"parse", "compile", "load"}
	least := map[string]time.Duration{}
	note := func(name string, took time.Duration) {
		if have, ok := least[name]; !ok || took < have {
			least[name] = took
		}
	}
	round := func(prefix string, steps ...func()) {
		var all, allCPU time.Duration
		for i, step := range steps {
			began, cpu := time.Now(), usedCPU(b)
			step()
			took := time.Since(began)
			cpu = usedCPU(b) - cpu
			note(prefix+names[i], took)
			all, allCPU = all+took, allCPU+cpu
		}
		note(prefix+"all", all)
		note(prefix+"all-cpu", allCPU)
	}
	var set *rule.Ruleset
	var cache rule.Cache
	var p *program.Program
	load := func() {
		if err := e.Load(p); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 15 {
		text := loadRules(10000, 1000+i%2*20000)
		round("", func() {
			if set, err = rule.ParseFile("rules", text, nil); err != nil {
				b.Fatal(err)
			}
		}, func() { p = compileSet(b, &cache, set) }, load)
		round("add-", func() {
			c, err := rule.ParseLine("add 30000 allow tcp from 192.0.2.1 to any 22", nil)
			if err != nil {
				b.Fatal(err)
			}
			set = set.Clone()
			if err := c.Apply(set); err != nil {
				b.Fatal(err)
			}
		}, func() { p = compileSet(b, &cache, set) }, load)
	}
	for name, took := range least {
		b.ReportMetric(float64(took.Microseconds())/1000, name+"-ms")
	}
}

// usedCPU returns the time that the process has had of all processors.
func usedCPU(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func compileSet(b *testing.B, cache *rule.Cache, set *rule.Ruleset) *program.Program {
	p, err := cache.Compile(set, rule.CompileOptions{Strict: true})
	if err != nil {
		b.Fatal(err)
	}
	return p
}
