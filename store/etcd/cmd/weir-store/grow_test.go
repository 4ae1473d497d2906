package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
)

// TestGrowTooMany: a weir-store that the list has no space for is refused before anything changes.
// If a thief of the store has filled the list, a restore begins another one.
func TestGrowTooMany(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	a.serve(t)
	err := members.ChangeIdentity(t.Context(), a.database(t), func(doc *cluster.Identity) {
		for i := range 63 {
			doc.Stores = append(doc.Stores, fmt.Sprintf("s%d:7477", i))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(a.dir, configFile))
	if err != nil {
		t.Fatal(err)
	}
	grow := []string{"grow", "-peer", "127.0.0.1:" + a.peer, "b"}
	file := filepath.Join(l.dir, "unused")
	if said := a.fails(t, append(grow, "127.0.0.1", file)...); !strings.Contains(said,
		"at most 64 are possible") {
		t.Fatal(said)
	}
	after, err := os.ReadFile(filepath.Join(a.dir, configFile))
	if err != nil || string(after) != string(before) {
		t.Fatalf("the configuration is %s, %v", after, err)
	}
	if said := a.run(t, append(grow, "s1", file)...); !strings.Contains(said, "restart") {
		t.Errorf("one that is in the list: %s", said)
	}
	a.run(t, "backup", file)
	a.stop(t)
	if said := a.run(t, "restore", file); !strings.Contains(said, "63 other weir-stores") {
		t.Errorf("those that are left out are not named: %s", said)
	}
	a.serve(t)
	doc, err := readIdentity(t.Context(), a.database(t))
	if err != nil || !slices.Equal(doc.Stores, []string{a.address}) {
		t.Errorf("weir-stores after a restore: %q, %v", doc.Stores, err)
	}
}
