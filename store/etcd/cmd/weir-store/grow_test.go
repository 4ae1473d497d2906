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
// If an attacker in the store has filled the list, a restore begins another one.
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

// TestGrowByMistake: what is refused adds no member. A new member that was added with a wrong
// address is named, and -replace removes it.
func TestGrowByMistake(t *testing.T) {
	l := newLab(t)
	a := l.open(t)
	d := a.database(t)
	members := func() (at []string) {
		list, err := d.Client().MemberList(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list.Members {
			at = append(at, m.PeerURLs...)
		}
		slices.Sort(at)
		return at
	}
	before, file := members(), filepath.Join(l.dir, "b.json")
	for want, words := range map[string][]string{
		"is this host":           {"-peer-port", a.peer, "b", "127.0.0.1", file},
		"a store host a already": {"a", "192.0.2.1", file},
		"not a regular file":     {"b", "192.0.2.1", l.dir},
	} {
		said := a.fails(t, append([]string{"grow"}, words...)...)
		if !strings.Contains(said, want) {
			t.Errorf("grow %q: %s", words, said)
		}
	}
	if after := members(); !slices.Equal(after, before) {
		t.Errorf("the members are %q", after)
	}
	wrong, right := "https://127.0.0.1:1", "https://127.0.0.1:2"
	grow := []string{"grow", "-wait", "1ms", "b", "127.0.0.1", file, "-peer-port"}
	a.fails(t, append(grow, "1")...)
	if said := a.fails(t, append(grow, "2")...); !strings.Contains(said, wrong) ||
		!strings.Contains(said, "-replace") {
		t.Errorf("with another new member: %s", said)
	}
	a.fails(t, append(grow, "2", "-replace")...)
	if after := members(); !slices.Contains(after, right) || len(after) != len(before)+1 {
		t.Errorf("with -replace the members are %q", after)
	}
}
