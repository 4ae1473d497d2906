package server

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// slow is a store whose reads end with their context.
type slow struct {
	store.Store
	reads chan string
}

func (s slow) Read(ctx context.Context, name string, _ int64) (store.Snapshot, error) {
	select {
	case s.reads <- name:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return store.Snapshot{}, ctx.Err()
}

// TestReadsOfSubtrees: a certificate has a few answers with subtrees in memory at once, whatever
// the number of its connections. Single keys do not wait for them.
func TestReadsOfSubtrees(t *testing.T) {
	from := slow{reads: make(chan string)}
	s := &Server{config: Config{Store: from}, conns: map[*conn]bool{}}
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxPerPeer {
		c := &conn{server: s, trees: make(chan struct{}, maxTrees)}
		c.ctx, c.cancel = context.WithCancel(ctx)
		c.admitted.Grants = []store.Grant{{Name: "w/"}}
		if !s.enter(c) {
			t.Fatal("it does not enter")
		}
		for _, name := range []string{"w/", "w/pods/b/", "w/head"} {
			group.Go(func() { c.read(wire.Read{Name: name}) })
		}
	}
	begun := map[bool]int{}
	for range maxTrees + maxPerPeer {
		name := <-from.reads
		begun[name == "w/head"]++
	}
	if begun[false] != maxTrees || begun[true] != maxPerPeer {
		t.Errorf("reads of subtrees %d, of keys %d", begun[false], begun[true])
	}
	select {
	case name := <-from.reads:
		t.Errorf("it reads %s as well", name)
	case <-time.After(50 * time.Millisecond):
	}
}
