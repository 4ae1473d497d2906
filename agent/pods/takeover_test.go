package pods

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
)

// emptyEngine has nothing of an earlier run.
type emptyEngine struct{ Engine }

func (emptyEngine) Endpoints() ([]forward.EndpointCounters, error) { return nil, nil }
func (emptyEngine) SetPublished([]forward.Published) error         { return nil }
func (emptyEngine) SetMasquerade(forward.Masquerade) error         { return nil }

// freeRanges are links that are in the way of no range.
type freeRanges struct{ Links }

func (freeRanges) RangesFree([]netip.Prefix, string) error { return nil }

// TestPodsThatAreKnown: those who wait until the pods are known hear of it, when an earlier run has
// left some and when there are none and never were.
func TestPodsThatAreKnown(t *testing.T) {
	nstest.RequireRoot(t)
	node := nstest.New(t).Node("host")
	for _, ranges := range [][]netip.Prefix{nil, {netip.MustParsePrefix("10.88.0.0/24")}} {
		heard := false
		var s *Service
		s = New(Config{Dir: t.TempDir(), Settings: Settings{Ranges: ranges},
			Engine: emptyEngine{}, Links: freeRanges{},
			PrepareForwarding: func(bool) error { return nil },
			Others: func() ([]forward.SourceNAT, []netip.Prefix) {
				return nil, nil
			},
			Changed: func() { heard = heard || s.Known() }})
		if s.Known() {
			t.Errorf("ranges %v: known before the start", ranges)
		}
		if err := node.Do(s.takeOver); err != nil {
			t.Fatal(err)
		}
		if s.Close(); !heard {
			t.Errorf("ranges %v: those who wait did not hear of the pods", ranges)
		}
	}
}
