package kernel

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
)

// limited has a source open flows until the limit refuses one, and returns how many it has opened.
func (b *sourceBench) limited(from string, back bool) (made int) {
	b.t.Helper()
	for ; ; made++ {
		v := b.datagram(from, 100+made, back)
		if v.Reason == firewall.ReasonLimit {
			return made
		}
		if v.State != firewall.StateNew || made > 100 {
			b.t.Fatalf("flow %d of %s: %+v", made, from, v)
		}
	}
}

// TestLimitCountsPrefixes: all addresses of a /64 have as many states as one IPv4 address, and hold
// one track. Destinations count by address.
func TestLimitCountsPrefixes(t *testing.T) {
	b := newSourceBench(t)
	if err := b.e.Load(compile(t,
		"add check-state\nadd allow udp from any to any limit src-addr 3\n")); err != nil {
		t.Fatal(err)
	}
	made := 0
	for n := range 1000 {
		switch v := b.datagram(fmt.Sprintf("fd01::%x:%x", n, 1000-n), 9, false); {
		case v.State == firewall.StateNew:
			made++
		case v.Reason != firewall.ReasonLimit:
			t.Fatalf("address %d: %+v", n, v)
		}
	}
	if made != 3 {
		t.Errorf("1000 addresses of a /64 have %d states, not 3", made)
	}
	for _, from := range []string{"fd01:0:0:1::1", "10.1.0.1", "10.1.0.2", "::1:0:1", "fe80::1"} {
		if n := b.limited(from, false); n != 3 {
			t.Errorf("%s has %d states, not 3", from, n)
		}
	}
	if n := b.e.agreeTracks(t); n != 6*3 {
		t.Errorf("the tracks count %d states", n)
	}
	if err := b.e.Load(compile(t,
		"add check-state\nadd allow udp from any to any limit dst-addr 3\n")); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"fd01::1", "fd01::2", "10.1.0.1", "10.1.0.2"} {
		if n := b.limited(to, true); n != 3 {
			t.Errorf("to %s there are %d states, not 3", to, n)
		}
	}
}

// TestTracksOfAddresses: a track that an earlier version has made for one IPv6 address counts its
// states until they end, also one that is proved later. The /64 has its own track from now on.
func TestTracksOfAddresses(t *testing.T) {
	b := newSourceBench(t)
	if err := b.e.Load(compile(t,
		"add check-state\nadd allow udp from any to any limit src-addr 2\n")); err != nil {
		t.Fatal(err)
	}
	const old = "fd01::7"
	b.datagram(old, 1, false)
	b.datagram(old, 2, false)
	var set weirTrackSet
	for n := range b.e.config.TrackSets {
		if err := b.e.objects.Tracks.Lookup(n, &set); err != nil {
			t.Fatal(err)
		}
		for way := range set.Track {
			if trackCount(set.Track[way].Held) == 0 {
				continue
			}
			set.Track[way].By.SrcLo = 7
			set.Tag[way] ^= 1 << 63
			if err := b.e.objects.Tracks.Put(n, set); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := b.limited(old, false); n != 2 {
		t.Errorf("the /64 has %d more states, not 2", n)
	}
	b.datagram(old, 1, true)
	b.datagram(old, 1, false)
	if s, err := b.e.Stats(); err != nil || s.States != 4 || s.HalfOpen != 3 {
		t.Errorf("%d states, %d of them half-open (%v), not 4 and 3", s.States, s.HalfOpen, err)
	}
	if n := b.e.agreeTracks(t); n != 4 {
		t.Errorf("the tracks count %d states, not 4", n)
	}
	b.now += time.Hour
	if err := sweepAt(b.e, b.now); err != nil {
		t.Fatal(err)
	}
	if n := b.e.agreeTracks(t); n != 0 {
		t.Errorf("all states have ended; the tracks count %d", n)
	}
}
