package pods

import (
	"net/netip"
	"strings"
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

func (freeRanges) RangesFree([]netip.Prefix, string) error  { return nil }
func (freeRanges) CheckRanges([]netip.Prefix, string) error { return nil }

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
			PrepareForwarding: func(bool, bool) error { return nil },
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

// TestFullRangeIsAProblem: the status shows that no address is left, until one is.
func TestFullRangeIsAProblem(t *testing.T) {
	nstest.RequireRoot(t)
	s := New(Config{Dir: t.TempDir(),
		Settings: Settings{Ranges: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/30")}},
		Engine:   emptyEngine{}, Links: freeRanges{},
		PrepareForwarding: func(bool, bool) error { return nil },
		Others:            func() ([]forward.SourceNAT, []netip.Prefix) { return nil, nil }})
	if err := nstest.New(t).Node("host").Do(s.takeOver); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if all := s.Problems(); len(all) != 0 {
		t.Errorf("problems with a free address: %v", all)
	}
	a := netip.MustParseAddr("10.88.0.2")
	if _, err := s.manager.Load().Reserve(a); err != nil {
		t.Fatal(err)
	}
	if all := s.Problems(); len(all) != 1 || !strings.Contains(all[0].What, "10.88.0.0/30") {
		t.Errorf("problems without a free address: %v", all)
	}
	s.manager.Load().Unreserve(a)
	if all := s.Problems(); len(all) != 0 {
		t.Errorf("problems with a free address again: %v", all)
	}
}
