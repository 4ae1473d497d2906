package cluster

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store/cluster"
)

// TestFillTablesFunc: before the first rules are in force the tables get what is picked for them,
// and then the rest.
func TestFillTablesFunc(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	member := cluster.Member{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Value: 7}
	bad := cluster.SharedMember{Table: "bad", Prefix: member.Prefix}
	l.put(cluster.BucketKey(bad.Table, member.Prefix),
		&cluster.Members{Members: []cluster.Member{member}})
	l.put(cluster.PodsTree+"b/0000", &cluster.Pods{Pods: []cluster.Pod{pod("x", "10.0.2.1")}})
	dir := t.TempDir()
	a := l.start("a", dir, 1, newParts(), false)
	nstest.Eventually(t, "it follows", func() bool { return a.hasLabel(web("10.0.2.1")) })
	a.stop()
	for _, first := range []string{bad.Table, "app=web"} {
		p, log := newParts(), slog.New(slog.DiscardHandler)
		s, err := Open(Config{Name: "a", Dir: dir, Trust: l.trust(), Key: keyOf("a"),
			Serial: cluster.Serial{1, 1}, Client: newDirect(l.model, "a"), Parts: p.parts(),
			Log: log, Problems: &problem.List{Log: log}})
		if err != nil {
			t.Fatal(err)
		}
		s.FillTablesFunc(func(table string) bool { return table == first })
		if (p.shared[bad] == 7) != (first == bad.Table) ||
			p.labels[web("10.0.2.1")] != (first == "app=web") {
			t.Errorf("first %s: %v, %v", first, p.shared, p.labels)
		}
		s.FillTables()
		if p.shared[bad] != 7 || !p.labels[web("10.0.2.1")] {
			t.Errorf("%s, then the rest: %v, %v", first, p.shared, p.labels)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFirstTables: of the tables of a cluster those that the first rules name come with them, and
// of others only what the engine is sure to take.
func TestFirstTables(t *testing.T) {
	const own = 100
	pick := FirstTables(map[string]bool{"app=web": true, "banned": true}, own)
	if long := "app=" + strings.Repeat("x", longestTable-3); pick(long) {
		t.Errorf("%s comes with the first rules", long)
	}
	n := 0
	for i := range 2 * mostFirst {
		if pick(fmt.Sprint("job=", i)) {
			n++
		}
	}
	if n != mostFirst-own || !pick("job=0") || pick("job=9999") {
		t.Errorf("%d tables that no rule names come with the first rules", n)
	}
	if !pick("app=web") || !pick("banned") {
		t.Error("a table of the rules does not come with them")
	}
}
