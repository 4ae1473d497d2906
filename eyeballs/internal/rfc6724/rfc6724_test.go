package rfc6724

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testrand"
)

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

func sorted(cs []Candidate) []Candidate {
	cs = slices.Clone(cs)
	slices.SortStableFunc(cs, func(a, b Candidate) int {
		ka, kb := KeyOf(a), KeyOf(b)
		return ka.Compare(&kb)
	})
	return cs
}

// TestS1Examples are the examples of RFC 6724 section 10.2 and cases of real hosts: "dst src" in
// the wrong order, and the destinations in the right one.
func TestS1Examples(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []string
		want string
	}{
		{"prefer matching scope", []string{"198.51.100.121 169.254.13.78",
			"2001:db8:1::1 2001:db8:1::2"}, "2001:db8:1::1 198.51.100.121"},
		{"prefer matching scope, reverse",
			[]string{"2001:db8:1::1 fe80::1", "198.51.100.121 198.51.100.117"},
			"198.51.100.121 2001:db8:1::1"},
		{"prefer higher precedence", []string{"10.1.2.3 10.1.2.4", "2001:db8:1::1 2001:db8:1::2"},
			"2001:db8:1::1 10.1.2.3"},
		{"prefer smaller scope", []string{"2001:db8:1::1 2001:db8:1::2", "fe80::1 fe80::2"},
			"fe80::1 2001:db8:1::1"},
		{"prefer matching label", []string{"2001:db8:1::1 2002:c633:6401::2",
			"2002:c633:6401::1 2002:c633:6401::2"}, "2002:c633:6401::1 2001:db8:1::1"},
		{"prefer higher precedence, 6to4",
			[]string{"2002:c633:6401::1 2002:c633:6401::2", "2001:db8:1::1 2001:db8:1::2"},
			"2001:db8:1::1 2002:c633:6401::1"},
		{"avoid unusable", []string{"2001:db8::1 ", "192.0.2.1 192.0.2.9"},
			"192.0.2.1 2001:db8::1"},
		{"longest prefix", []string{"2001:db8:ff::1 2001:db8:1::9", "2001:db8:1::1 2001:db8:1::9"},
			"2001:db8:1::1 2001:db8:ff::1"},
		{"no longest prefix in IPv4", []string{"203.0.113.1 192.0.2.9", "192.0.2.1 192.0.2.9"},
			"203.0.113.1 192.0.2.1"},
		{"ULA after IPv4", []string{"fd00::1 fd00::2", "192.0.2.1 192.0.2.9"}, "192.0.2.1 fd00::1"},
		{"loopback", []string{"127.0.0.1 127.0.0.1", "::1 ::1"}, "::1 127.0.0.1"},
		{"Teredo last", []string{"2001::1 2001::2", "192.0.2.1 192.0.2.9"}, "192.0.2.1 2001::1"},
	} {
		var cs []Candidate
		for _, s := range tt.in {
			dst, src, _ := strings.Cut(s, " ")
			cs = append(cs, Candidate{Dst: addr(dst), Src: addr(src)})
		}
		var got []string
		for _, c := range sorted(cs) {
			got = append(got, c.Dst.String())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q want %q", tt.name, got, tt.want)
		}
	}
}

func TestRule1AvoidsUnusable(t *testing.T) {
	got := sorted([]Candidate{
		{Dst: addr("2001:db8::1"), Src: addr("2001:db8::9"), Unusable: true},
		{Dst: addr("192.0.2.1"), Src: addr("192.0.2.9")},
	})
	if !got[0].Dst.Is4() {
		t.Error("a destination known to be down comes first")
	}
}

func TestRule3AvoidsDeprecated(t *testing.T) {
	got := sorted([]Candidate{
		{Dst: addr("2001:db8::1"), Src: addr("2001:db8::9"), Deprecated: true},
		{Dst: addr("192.0.2.1"), Src: addr("192.0.2.9")},
	})
	if !got[0].Dst.Is4() {
		t.Error("a deprecated source address comes first")
	}
}

// TestS2History: the shortest round-trip time comes first, then what was used before, but only
// between equals. Rule 9, the longest prefix, decides after that.
func TestS2History(t *testing.T) {
	got := sorted([]Candidate{
		{Dst: addr("192.0.2.1"), Src: addr("192.0.2.9"), RTT: 1},
		{Dst: addr("2001:db8:9::1"), Src: addr("2001:db8:9::9")},
		{Dst: addr("2001:db8:8::1"), Src: addr("2001:db8:9::9"), RTT: 21 * time.Millisecond},
		{Dst: addr("2001:db8:7::1"), Src: addr("2001:db8:9::9"), RTT: 20 * time.Millisecond},
	})
	for i, want := range []string{"2001:db8:7::1", "2001:db8:8::1", "2001:db8:9::1", "192.0.2.1"} {
		if got[i].Dst != addr(want) {
			t.Errorf("%d is %v, want %s", i, got[i].Dst, want)
		}
	}
}

// modelLess is section 6 as it is written: rule after rule on a pair.
func modelLess(a, b Candidate) bool {
	sa, sb := a.Src.IsValid(), b.Src.IsValid()
	if sa != sb { // rule 1
		return sa
	}
	if a.Unusable != b.Unusable {
		return b.Unusable
	}
	if sa {
		if x, y := scope(a.Dst) == scope(a.Src), scope(b.Dst) == scope(b.Src); x != y { // rule 2
			return x
		}
		if a.Deprecated != b.Deprecated { // rule 3
			return b.Deprecated
		}
		// rule 5
		if x, y := modelPolicy(a.Dst)[1] == modelPolicy(a.Src)[1],
			modelPolicy(b.Dst)[1] == modelPolicy(b.Src)[1]; x != y {
			return x
		}
	}
	if x, y := modelPolicy(a.Dst)[0], modelPolicy(b.Dst)[0]; x != y { // rule 6
		return x > y
	}
	if x, y := scope(a.Dst), scope(b.Dst); x != y { // rule 8
		return x < y
	}
	if a.RTT > 0 && b.RTT > 0 && a.RTT != b.RTT { // RFC 8305 section 4
		return a.RTT < b.RTT
	}
	if (a.RTT > 0) != (b.RTT > 0) {
		return a.RTT > 0
	}
	if sa && a.Dst.Is6() && b.Dst.Is6() { // rule 9
		for n := 64; n > 0; n-- {
			x, y := modelShares(a, n), modelShares(b, n)
			if x != y {
				return x
			}
		}
	}
	return false
}

func modelShares(c Candidate, bits int) bool {
	p, _ := c.Dst.Prefix(bits)
	return c.Src.Is6() && p.Contains(c.Src)
}

func modelPolicy(a netip.Addr) [2]int {
	if a.Is4() {
		return [2]int{35, 4}
	}
	best, result := -1, [2]int{}
	for p, v := range map[string][2]int{"::1/128": {50, 0}, "::/0": {40, 1}, "2002::/16": {30, 2},
		"2001::/32": {5, 5}, "fc00::/7": {3, 13}, "::/96": {1, 3}, "fec0::/10": {1, 11},
		"3ffe::/16": {1, 12}} {
		if p := netip.MustParsePrefix(p); p.Contains(a) && p.Bits() > best {
			best, result = p.Bits(), v
		}
	}
	return result
}

// TestModel sorts random candidates with the keys and, by insertion, with the rules as written.
func TestModel(t *testing.T) {
	pool := []string{"::1", "fe80::1", "fe80::2", "2001:db8::1", "2001:db8:0:1::1",
		"2001:db8:8000::1", "2002:c000:201::1", "2001::1", "fd00::1", "fd00:1::1", "fec0::1",
		"3ffe::1", "::192.0.2.1", "127.0.0.1", "169.254.1.1", "10.0.0.1", "192.0.2.1",
		"198.51.100.7", "ff0e::1", "ff02::1", "2600::1"}
	seed := testrand.Seed(t)
	for i := range 5000 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		cs := make([]Candidate, r.IntN(10))
		for j := range cs {
			c := &cs[j]
			c.Dst = addr(pool[r.IntN(len(pool))])
			if s := addr(pool[r.IntN(len(pool))]); s.Is4() == c.Dst.Is4() {
				c.Src = s
			}
			c.Unusable, c.Deprecated = r.IntN(5) == 0, r.IntN(5) == 0
			c.RTT = time.Duration(r.IntN(3))
		}
		var want []Candidate
		for _, c := range cs {
			at := len(want)
			for at > 0 && modelLess(c, want[at-1]) {
				at--
			}
			want = slices.Insert(want, at, c)
		}
		if got := sorted(cs); !slices.Equal(got, want) {
			t.Fatalf("seed %d, %d:\n got %v\nwant %v", seed, i, got, want)
		}
	}
}
