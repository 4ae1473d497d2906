package nl

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// show writes an event down in a word or two.
func show(e Event) string {
	switch e.Kind {
	case LinkSet:
		return "+" + e.Link.Name
	case LinkGone:
		return "-" + e.Link.Name
	case AddrSet:
		return fmt.Sprintf("+%d:%s", e.Addr.Link, e.Addr.Prefix)
	case AddrGone:
		return fmt.Sprintf("-%d:%s", e.Addr.Link, e.Addr.Prefix)
	}
	return "synced"
}

func TestTableTellsOnlyNews(t *testing.T) {
	var got []string
	tab := newTable(func(e Event) { got = append(got, show(e)) })
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
		got = nil
	}
	lo, eth := Link{Index: 1, Name: "lo", MTU: 65536}, Link{Index: 2, Name: "eth0", MTU: 1500}
	a := Addr{Link: 2, Prefix: netip.MustParsePrefix("10.0.0.1/24")}
	b := Addr{Link: 2, Prefix: netip.MustParsePrefix("fd00::1/64"), Tentative: true}

	tab.sync([]Link{lo, eth}, []Addr{a, b})
	expect("first listing", "+lo", "+eth0", "+2:10.0.0.1/24", "+2:fd00::1/64", "synced")

	tab.setLink(eth)
	tab.setAddr(a)
	expect("a repetition")

	b.Tentative = false
	tab.setAddr(b)
	eth.MTU = 9000
	tab.setLink(eth)
	expect("changes", "+2:fd00::1/64", "+eth0")

	tab.dropAddr(addrKey{2, a.Prefix})
	tab.dropAddr(addrKey{2, a.Prefix})
	tab.dropLink(7)
	expect("one address gone", "-2:10.0.0.1/24")

	tab.dropLink(2)
	tab.dropAddr(addrKey{2, b.Prefix}) // the late notification
	expect("link gone before its addresses", "-2:fd00::1/64", "-eth0")

	tab.setLink(eth)
	tab.setAddr(a)
	got = nil
	ppp := Link{Index: 3, Name: "ppp0"}
	tab.sync([]Link{lo, ppp}, nil)
	expect("a listing after losses", "-2:10.0.0.1/24", "-eth0", "+ppp0", "synced")
}
