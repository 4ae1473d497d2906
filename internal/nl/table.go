package nl

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// EventKind says what an Event reports.
type EventKind uint8

// What Watch reports.
const (
	LinkSet  EventKind = iota + 1 // Link is there, new or changed
	LinkGone                      // Link is gone; its addresses were reported gone before
	AddrSet                       // Addr is there, new or changed; its link may be reported later
	AddrGone                      // Addr is gone
	// everything that was there when the listing began has been reported
	Synced
)

// Event is one thing that Watch reports. Link or Addr is set, according to Kind.
type Event struct {
	Kind EventKind
	Link Link
	Addr Addr
}

type addrKey struct {
	link   int
	prefix netip.Prefix
}

// table is what was reported so far. It turns notifications and listings into events that report
// only differences.
type table struct {
	links  map[int]Link
	addrs  map[addrKey]Addr
	gone   map[int]bool // indexes of links that went and were not used again
	report func(Event)
}

func newTable(report func(Event)) *table {
	return &table{links: map[int]Link{}, addrs: map[addrKey]Addr{}, gone: map[int]bool{},
		report: report}
}

func (t *table) setLink(l Link) {
	if old, ok := t.links[l.Index]; ok && old.equal(l) {
		return
	}
	t.links[l.Index] = l
	t.report(Event{Kind: LinkSet, Link: l})
}

// dropLink also drops the link's addresses: their notifications come through another socket and may
// be late.
func (t *table) dropLink(index int) {
	l, ok := t.links[index]
	if !ok {
		return
	}
	for _, k := range t.addrKeys() {
		if k.link == index {
			t.dropAddr(k)
		}
	}
	delete(t.links, index)
	t.report(Event{Kind: LinkGone, Link: l})
}

func (t *table) setAddr(a Addr) {
	k := addrKey{a.Link, a.Prefix}
	if old, ok := t.addrs[k]; ok && old == a {
		return
	}
	t.addrs[k] = a
	t.report(Event{Kind: AddrSet, Addr: a})
}

func (t *table) dropAddr(k addrKey) {
	a, ok := t.addrs[k]
	if !ok {
		return
	}
	delete(t.addrs, k)
	t.report(Event{Kind: AddrGone, Addr: a})
}

// sync reports how a listing differs from what was reported so far.
func (t *table) sync(links []Link, addrs []Addr) {
	linkThere := map[int]bool{}
	for _, l := range links {
		linkThere[l.Index] = true
	}
	addrThere := map[addrKey]bool{}
	for _, a := range addrs {
		addrThere[addrKey{a.Link, a.Prefix}] = true
	}
	for _, k := range t.addrKeys() {
		if !addrThere[k] {
			t.dropAddr(k)
		}
	}
	for _, index := range slices.Sorted(maps.Keys(t.links)) {
		if !linkThere[index] {
			t.dropLink(index)
		}
	}
	for _, l := range links {
		t.setLink(l)
	}
	for _, a := range addrs {
		t.setAddr(a)
	}
	t.report(Event{Kind: Synced})
}

func (t *table) addrKeys() []addrKey {
	return slices.SortedFunc(maps.Keys(t.addrs), func(a, b addrKey) int {
		return cmp.Or(cmp.Compare(a.link, b.link), a.prefix.Compare(b.prefix))
	})
}
