package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store/cluster"
)

// TestMovesAreBounded: a host that announces other endpoints all the time is changed at others once
// in a second, and then as it is by then. Its removal and another certificate do not wait.
func TestMovesAreBounded(t *testing.T) {
	m, now := moves{}, time.Now()
	node := &cluster.Node{Serial: cluster.Serial{1}}
	changes := 0
	for range 100 { // in 10 s
		if now = now.Add(100 * time.Millisecond); m.may(cluster.HostChange{Name: "b",
			Node: node}, now) {
			changes++
		}
	}
	if want := moveBurst + 10; changes < want-2 || changes > want {
		t.Errorf("%d changes in 10 s, want %d", changes, want)
	}
	for what, h := range map[string]cluster.HostChange{
		"another host":        {Name: "c", Node: node},
		"another certificate": {Name: "b", Node: &cluster.Node{Serial: cluster.Serial{2}}},
		"a removal":           {Name: "b"},
	} {
		if !m.may(h, now) {
			t.Errorf("%s waits", what)
		}
	}
}

// TestLastMoveCounts: of many changes of a host the last one is in force in the end.
func TestLastMoveCounts(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	b := l.start("b", t.TempDir(), 2, newParts(), false)
	var last []netip.AddrPort
	for n := range 3 * moveBurst {
		last = []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"),
			uint16(1000+n))}
		b.SetEndpoints(last)
		nstest.Eventually(t, fmt.Sprint(last, " is written"), func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			e, signed := b.signed(b.own.value(cluster.EndpointKey + "b"))
			return signed && slices.Equal(e.Addrs, last)
		})
	}
	nstest.Eventually(t, "the last one is in force", func() bool {
		a.parts.mu.Lock()
		defer a.parts.mu.Unlock()
		return slices.Equal(a.parts.hosts["b"].Addrs, last)
	})
}
