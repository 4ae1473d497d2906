package pods

import (
	"errors"
	"maps"
	"net/netip"
	"testing"
)

// leftTables are what an earlier agent has left.
type leftTables struct {
	of    map[netip.Addr][]string
	fresh bool // there was none
	fails error
	asked int
}

func (l *leftTables) TakenOver() bool { return !l.fresh }

func (l *leftTables) LabelsLeft(a netip.Addr) ([]string, error) {
	l.asked++
	return l.of[a], l.fails
}

// TestLeftLabels: a pod gets the labels that all its addresses had, and none that is in doubt; what
// was answered once stays when the tables are gone.
func TestLeftLabels(t *testing.T) {
	a4, a6, b4 := netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("fd88::2"),
		netip.MustParseAddr("10.88.0.3")
	tables := func() *leftTables {
		return &leftTables{of: map[netip.Addr][]string{a4: {"app=web", "tier=front"},
			a6: {"app=web"}, b4: {"app=db", "app=web"}}}
	}
	for _, one := range []struct {
		name  string
		addrs []netip.Addr
		with  func(*leftTables)
		want  map[string]string
	}{
		{"of one address", []netip.Addr{a4}, nil, map[string]string{"app": "web", "tier": "front"}},
		{"of both addresses", []netip.Addr{a6, a4}, nil, map[string]string{"app": "web"}},
		{"no labels", []netip.Addr{netip.MustParseAddr("10.88.0.9")}, nil, map[string]string{}},
		{"two values", []netip.Addr{b4}, nil, nil},
		{"nothing taken over", []netip.Addr{a4}, func(l *leftTables) { l.fresh = true }, nil},
		{"unreadable", []netip.Addr{a4}, func(l *leftTables) { l.fails = errors.New("no") }, nil},
	} {
		t.Run(one.name, func(t *testing.T) {
			from := tables()
			if one.with != nil {
				one.with(from)
			}
			l := leftLabels{engine: from}
			got := l.of(one.addrs)
			if !maps.Equal(got, one.want) || (got == nil) != (one.want == nil) {
				t.Errorf("%v had %v, want %v", one.addrs, got, one.want)
			}
			asked := from.asked
			from.of = nil
			if again := l.of(one.addrs); !maps.Equal(got, again) || from.asked != asked {
				t.Errorf("asked again: %v", again)
			}
		})
	}
}
