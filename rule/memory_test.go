package rule

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// addressRules are n rules, each with addresses of its own at both ends.
func addressRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "add %d deny tcp from 10.%d.%d.0/24,10.%d.%d.0/24 to 172.%d.%d.1 %d\n",
			1+i, i>>8, i&255, 128+i>>8, i&255, 16+i>>8, i&255, 1000+i)
	}
	return b.String()
}

// TestMemoryIsLinear: what it takes to read and compile a rule file grows with the file. The
// vectors, written out, would grow with its square.
func TestMemoryIsLinear(t *testing.T) {
	took := func(n int) uint64 {
		text := addressRules(n)
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
		return after.TotalAlloc - before.TotalAlloc
	}
	small, large := took(4000), took(16000)
	t.Logf("4,000 rules take %d KiB, 16,000 %d KiB", small>>10, large>>10)
	if large > 5*small {
		t.Errorf("four times the rules take %.1f times the memory", float64(large)/float64(small))
	}
}
