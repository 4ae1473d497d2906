package server

import (
	"context"
	"slices"
	"testing"

	"github.com/weirnet/weir/store/identity"
)

// TestOldestConnectionEnds: of more connections of a certificate than it may have, the oldest ends,
// also if they began at the same moment. One that has ended and not left yet does not count.
func TestOldestConnectionEnds(t *testing.T) {
	s := &Server{conns: map[*conn]bool{}}
	var all []*conn
	enter := func(serial byte) *conn {
		c := &conn{server: s, peer: identity.Peer{Serial: identity.Serial{serial}}}
		c.ctx, c.cancel = context.WithCancel(t.Context())
		if !s.enter(c) {
			t.Fatal("a connection does not enter")
		}
		all = append(all, c)
		return c
	}
	want := func(when string, ended ...int) {
		t.Helper()
		var got []int
		for i, c := range all {
			if c.ctx.Err() != nil {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, ended) {
			t.Errorf("%s: connections %v ended, want %v", when, got, ended)
		}
	}
	other := enter(2)
	for range maxPerPeer {
		enter(1)
	}
	want("as many as there may be")
	enter(1)
	want("one more", 1)
	all[3].cancel()
	enter(1)
	want("one that takes the place of one that ended", 1, 3)
	enter(1)
	want("one more", 1, 2, 3)
	if other.ctx.Err() != nil {
		t.Error("a connection of another certificate ended")
	}
}
