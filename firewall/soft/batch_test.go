package soft

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// TestBatchesEvaluateAsSingles gives the packets of random cases to one engine in batches, with and
// without looking ahead, and to another one by one: verdicts and states must be the same.
func TestBatchesEvaluateAsSingles(t *testing.T) {
	for seed := range uint64(60) {
		c := enginetest.RandomCase(seed, program.AllFeatures, testOptions(), 300)
		rs, err := rule.ParseFile("random", strings.Join(c.Rules[0], "\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := rule.Compile(rs, rule.CompileOptions{Default: c.Default, Strict: c.Strict})
		if err != nil {
			t.Fatal(err)
		}
		var engines [2]*Engine
		for i := range engines {
			if engines[i], err = New(Options{Options: testOptions()}); err != nil {
				t.Fatal(err)
			}
			if err := engines[i].Load(p); err != nil {
				t.Fatal(err)
			}
		}
		engines[1].prefetchStates = int(seed%3)*10 - 1
		var pkts [][]byte
		var segments []uint16
		var input firewall.Input
		for _, s := range c.Steps {
			if s.Kind != enginetest.StepPacket {
				continue
			}
			pkts = append(pkts, s.Packet)
			segments = append(segments, append(s.Input.Segments, 0)[0])
			if len(pkts) < 1+int(seed) {
				continue
			}
			input = s.Input
			input.Segments = segments
			got := make([]firewall.Verdict, len(pkts))
			engines[1].Worker(0).EvaluateBatch(&input, pkts, got)
			for i, pkt := range pkts {
				each := input
				each.Random += uint32(i) * RandomStep
				each.Segments = segments[i : i+1]
				if want := engines[0].Worker(0).Evaluate(&each, pkt); got[i] != want {
					t.Fatalf("seed %d: packet %d of %d: %+v in a batch, %+v by itself\n%s", seed, i,
						len(pkts), got[i], want, strings.Join(c.Rules[0], "\n"))
				}
			}
			pkts, segments = pkts[:0], segments[:0]
		}
		if one, other := list(t, engines[0]), list(t, engines[1]); !slices.Equal(one, other) {
			t.Fatalf("seed %d: states\n%s\nin batches\n%s", seed, strings.Join(one, "\n"),
				strings.Join(other, "\n"))
		}
	}
}

// list returns the states as sorted text.
func list(t *testing.T, e *Engine) []string {
	var lines []string
	for _, s := range states(t, e) {
		lines = append(lines, fmt.Sprintf("%+v", s))
	}
	slices.Sort(lines)
	return lines
}
