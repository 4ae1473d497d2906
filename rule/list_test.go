package rule

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func randomList(r *rand.Rand) *List {
	l := &List{File: "/x"}
	for range r.IntN(40) {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(16))})
		if r.IntN(2) == 0 {
			a = netip.AddrFrom16([16]byte{0xfd, 15: byte(r.IntN(16))})
		}
		l.Prefixes = append(l.Prefixes, netip.PrefixFrom(a, a.BitLen()-r.IntN(9)).Masked())
	}
	slices.SortFunc(l.Prefixes, netip.Prefix.Compare)
	l.Prefixes = slices.Compact(l.Prefixes)
	return l
}

// TestListDifference: what is added and removed leads from one list to the other, and nothing else
// is named. The tables of both answer as maps do.
func TestListDifference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := randomList(r), randomList(r)
		have := map[netip.Prefix]bool{}
		for _, p := range a.Prefixes {
			have[p] = true
		}
		added, removed := a.Difference(b)
		for _, p := range added {
			if have[p] || !b.Has(p) {
				t.Fatalf("%v is added", p)
			}
			have[p] = true
		}
		for _, p := range removed {
			if !have[p] || b.Has(p) {
				t.Fatalf("%v is removed", p)
			}
			delete(have, p)
		}
		if len(have) != len(b.Prefixes) {
			t.Fatalf("%v and %v lead to %v", added, removed, have)
		}
		plain := &Ruleset{Tables: map[string]Table{"t": {}}}
		for _, p := range b.Prefixes {
			plain.Tables["t"][p] = 0
		}
		file := &Ruleset{Lists: map[string]*List{"t": b}}
		for i := range 32 {
			for _, x := range []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}),
				netip.AddrFrom16([16]byte{0xfd, 15: byte(i)})} {
				_, want := plain.Lookup("t", x)
				if _, got := file.Lookup("t", x); got != want {
					t.Fatalf("%v in %v: %t", x, b.Prefixes, got)
				}
			}
		}
		if plain.Size("t") != file.Size("t") || len(file.Entries("t")) != len(b.Prefixes) {
			t.Fatalf("sizes %d and %d", plain.Size("t"), file.Size("t"))
		}
	}
}

// TestListsAreNotChanged: no command changes a table that comes from a file, but to destroy it.
func TestListsAreNotChanged(t *testing.T) {
	const file = "table blocked create file /etc/weir/blocked.txt\n"
	for _, line := range []string{"table blocked add 10.0.0.1", "table blocked delete 10.0.0.1",
		"table blocked flush", "table blocked create missing",
		"table blocked create missing file /etc/other"} {
		if _, err := ParseFile("f", file+line, nil); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
	if _, err := ParseFile("f", "table blocked create\n"+file, nil); err == nil ||
		!strings.Contains(err.Error(), "exists already") {
		t.Error(err)
	}
	s, err := ParseFile("f", file+"table blocked create missing file /etc/weir/blocked.txt\n"+
		"table a add 10.0.0.1\ntable all flush", nil)
	if err != nil || s.Lists["blocked"] == nil || len(s.Tables["a"]) != 0 {
		t.Fatal(err, s)
	}
	c := s.Clone()
	if l, err := ParseLine("table all destroy", nil); err != nil || l.Apply(s) != nil ||
		len(s.Lists) != 0 || len(c.Lists) != 1 {
		t.Error(err, s.Lists, c.Lists)
	}
}
