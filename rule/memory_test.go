package rule

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// networkRules are n rules, each with networks and a port of its own.
func networkRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "add %d deny tcp from 10.%d.%d.0/24,10.%d.%d.0/24 to 172.%d.%d.1 %d\n",
			1+i, i>>8, i&255, 128+i>>8, i&255, 16+i>>8, i&255, 1000+i)
	}
	return b.String()
}

// scatteredRules are n rules, each with a list of addresses that are far from each other.
func scatteredRules(n int) string {
	g := rand.New(rand.NewPCG(1, 1))
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "add %d deny tcp from ", 1+i)
		for k := range 13 {
			if k > 0 {
				b.WriteByte(',')
			}
			a := g.Uint32()
			fmt.Fprintf(&b, "%d.%d.%d.%d", 1+a>>24%220, a>>16&255, a>>8&255, a&255)
		}
		fmt.Fprintf(&b, " to any %d\n", i)
	}
	return b.String()
}

// TestMemoryIsLinear: what it takes to read and compile a rule file grows with the file. Vectors
// that are written out would grow with its square, and each scattered address takes a kilobyte of
// an index.
func TestMemoryIsLinear(t *testing.T) {
	took := func(t *testing.T, n int, text string) float64 {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := ParseFile("rules", text, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile(s, CompileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if len(p.Rules) != n+1 {
			t.Fatalf("%d rules", len(p.Rules))
		}
		took := after.TotalAlloc - before.TotalAlloc
		t.Logf("%d rules in %d KiB take %d KiB", n, len(text)>>10, took>>10)
		return float64(took) / float64(len(text))
	}
	for name, rules := range map[string]func(int) string{"networks": networkRules,
		"scattered": scatteredRules} {
		t.Run(name, func(t *testing.T) {
			small, large := took(t, 4000, rules(4000)), took(t, 16000, rules(16000))
			if large > 1.3*small || large > 80 {
				t.Errorf("%.0f bytes for each of the file, %.0f in a file four times as large",
					small, large)
			}
		})
	}
}
