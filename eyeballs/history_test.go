package eyeballs

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	h, now := &History{}, time.Now()
	v6, v4 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")
	h.recall(1, "x")
	h.record(1, "x", []outcome{{addr: v6, dead: true},
		{addr: v4, won: true, rtt: 40 * time.Millisecond}}, false, false, now)
	p, ok := h.recall(1, "x")
	if !ok || !p.avoid(v6, now) || p.avoid(v4, now) || !p.familyDead(false, now) ||
		p.attemptDelay(v4) != 120*time.Millisecond || p.rank(v4) != -2 {
		t.Errorf("%+v", p)
	}
	// A new address of the dead family shares its fate; after a while all is tried again.
	if other := netip.MustParseAddr("2001:db8::2"); !p.avoid(other, now) ||
		p.avoid(other, now.Add(remember)) || p.avoid(v6, now.Add(remember)) {
		t.Error("the family")
	}
	// A success ends it at once.
	h.record(1, "x", []outcome{{addr: v6, won: true, rtt: time.Millisecond}}, false, false, now)
	if p, _ = h.recall(1, "x"); p.avoid(v6, now) || p.familyDead(false, now) {
		t.Errorf("%+v", p)
	}
	// A family whose answer was late is not waited for, but used as before once its
	// addresses are known.
	h.record(1, "x", []outcome{{addr: v4, won: true, rtt: time.Millisecond}}, false, true, now)
	if p, _ = h.recall(1, "x"); p.await(false, now) || !p.await(true, now) || p.avoid(v6, now) ||
		p.familyDead(false, now) {
		t.Errorf("%+v", p)
	}
	h.record(1, "x", []outcome{{addr: v4, won: true, rtt: time.Millisecond}}, false, false, now)
	if p, _ = h.recall(1, "x"); !p.await(false, now) {
		t.Errorf("%+v", p)
	}
	// What a dial learned on another network is not recorded here, and a change
	// of the network empties everything.
	h.record(2, "y", []outcome{{addr: v6, won: true}}, false, false, now)
	if _, ok := h.recall(1, "y"); ok {
		t.Error("recorded from another network")
	}
	if _, ok := h.recall(2, "x"); ok {
		t.Error("kept across networks")
	}
	for i := range 2 * maxPlaces {
		h.record(2, fmt.Sprint(i), []outcome{{addr: v6, won: true}}, false, false, now)
	}
	for i := range 2 * maxPerPlace {
		h.record(2, "z", []outcome{{addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), won: true}},
			false, false, now)
	}
	if p, _ := h.recall(2, "z"); len(h.places) > maxPlaces || len(p.addrs) > maxPerPlace {
		t.Errorf("%d places, %d addresses", len(h.places), len(p.addrs))
	}
}
