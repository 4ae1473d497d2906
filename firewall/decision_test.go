package firewall

import (
	"testing"

	"github.com/weirnet/weir/packet"
)

// TestDecisionIndex: every decision has a number of its own, and DecisionAt returns it.
func TestDecisionIndex(t *testing.T) {
	if last := int(ReasonDecode) + int(packet.NumReasons); last > 128 || numReasons > ReasonDecode {
		t.Fatalf("there are reasons up to %d, 7 bits are kept for them", last)
	}
	seen := map[int]bool{}
	for _, dir := range []Direction{In, Out} {
		for _, pass := range []bool{false, true} {
			for r := range Reason(128) {
				d := Decision{Dir: dir, Pass: pass, Reason: r}
				i := d.Index()
				if i < 0 || i >= NumDecisions || seen[i] || DecisionAt(i) != d {
					t.Fatalf("%+v has number %d, which is that of %+v", d, i, DecisionAt(i))
				}
				seen[i] = true
			}
		}
	}
}
