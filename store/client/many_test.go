package client_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
)

// TestManyHosts: many hosts begin at once, get every change, and come back at once after
// weir-store was started again. Then they continue: none gets what it has.
func TestManyHosts(t *testing.T) { synctest.Test(t, func(t *testing.T) { manyHosts(t, 100) }) }

// TestLongManyHosts does it with as many as a store is made for.
func TestLongManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { manyHosts(t, 1000) })
}

// manyHosts runs in a bubble: in no handshake is time lost to another one, or on a busy machine.
func manyHosts(t *testing.T, hosts int) {
	t.Helper()
	w := newPiped(t, "h/", client.DefaultSilence)
	for i := range 100 {
		w.put(t, fmt.Sprintf("h/%d", i), "1")
	}
	begin := time.Now()
	var all []*follower
	for range hosts {
		all = append(all, w.follow(t, store.Snapshot{}, ignore))
	}
	everywhere := func(what string) {
		t.Helper()
		for _, f := range all {
			w.arrives(t, f)
		}
		t.Logf("%s: %v", what, time.Since(begin).Round(time.Millisecond))
	}
	everywhere("all began")
	begin = time.Now()
	w.put(t, "h/0", "2")
	everywhere("a change")
	for _, f := range all {
		f.mu.Lock()
		f.largest = 0
		f.mu.Unlock()
	}
	w.stop()
	w.put(t, "h/1", "2")
	begin = time.Now()
	w.start(t)
	everywhere("all came back, and have what changed")
	if n := w.server.Counters.Waits.Load(); n > 0 {
		t.Logf("%d were asked to wait", n)
	}
	for _, f := range all {
		f.mu.Lock()
		if f.largest != 1 {
			t.Errorf("a step of %d changes", f.largest)
		}
		f.mu.Unlock()
	}
}
