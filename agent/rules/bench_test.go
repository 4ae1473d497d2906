package rules

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// BenchmarkAdd measures what `weir fw add` to 10,000 rules takes in the agent, until the rule is in
// force in the kernel engine and saved. Least of some rounds: run with -benchtime 1x.
func BenchmarkAdd(b *testing.B) {
	nstest.RequireRoot(b)
	e, err := kernel.Open(kernel.Config{Options: firewall.DefaultOptions()})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	defer e.Close()
	quiet := slog.New(slog.DiscardHandler)
	k := New(Config{Saved: filepath.Join(b.TempDir(), "rules.saved"), Engine: e, Log: quiet,
		Prepare:  func(*program.Program) error { return nil },
		Problems: &problem.List{Log: quiet}})
	var text strings.Builder
	for i := range 9_990 {
		fmt.Fprintf(&text, "add %d deny udp from 10.%d.%d.0/24 to any %d\n", 2+i, 1+i/250, i%250,
			1000+i)
	}
	set, err := rule.ParseFile("rules", text.String(), k.names)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := k.begin(Version{Set: set, Source: "rules"}); err != nil {
		b.Fatal(err)
	}
	least := time.Hour
	for i := range 15 {
		began := time.Now()
		if _, err := k.do(fmt.Sprintf("add %d allow tcp from 192.0.2.%d to any 22", 20_000-i, i),
			false); err != nil {
			b.Fatal(err)
		}
		least = min(least, time.Since(began))
	}
	if n := len(k.rules.Set.Rules); n != 10_005 {
		b.Fatalf("%d rules", n)
	}
	b.ReportMetric(float64(least.Microseconds())/1000, "least-ms")
}
