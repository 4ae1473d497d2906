package rule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/program"
)

// mixedRules is a rule file of n rules like those of a large site: hosts, networks, services,
// ranges, both families, some interfaces.
func mixedRules(n int) string {
	g := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	for i := range n {
		proto := []string{"tcp", "udp", "{ tcp or udp }"}[g.IntN(3)]
		fmt.Fprintf(&b, "add %d %s %s from ", 1+i*6, []string{"allow", "deny", "count"}[g.IntN(3)],
			proto)
		switch g.IntN(4) {
		case 0:
			b.WriteString("any")
		case 1:
			fmt.Fprintf(&b, "2001:db8:%x::/48", g.IntN(1<<16))
		default:
			fmt.Fprintf(&b, "10.%d.%d.%d/%d", g.IntN(256), g.IntN(256), g.IntN(256), 16+g.IntN(17))
		}
		b.WriteString(" to ")
		switch g.IntN(4) {
		case 0:
			b.WriteString("me")
		case 1:
			fmt.Fprintf(&b, "2001:db8:ffff:%x::%x", g.IntN(1<<16), g.IntN(1<<16))
		default:
			fmt.Fprintf(&b, "192.%d.%d.%d,172.16.%d.0/24", g.IntN(256), g.IntN(256), g.IntN(256),
				g.IntN(256))
		}
		if g.IntN(2) == 0 {
			fmt.Fprintf(&b, " %d", g.IntN(65536))
		} else {
			lo := g.IntN(60000)
			fmt.Fprintf(&b, " %d-%d,%d", lo, lo+g.IntN(5000), g.IntN(65536))
		}
		switch g.IntN(6) {
		case 0:
			b.WriteString(" in via eth0")
		case 1:
			b.WriteString(" setup")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		text := mixedRules(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseFile("bench", text, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/rule")
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		s := ruleset(b, mixedRules(n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			var p *program.Program
			for b.Loop() {
				p = mustCompile(b, s)
			}
			bytes := 4 * (len(p.Classes.Src.Directory().Blocks) +
				len(p.Classes.Dst.Directory().Blocks))
			for _, v := range p.Classes.Vectors {
				bytes += 8 * v.Len() * p.Classes.Words
			}
			b.ReportMetric(float64(bytes)/(1<<20), "MiB-tables")
		})
	}
}
