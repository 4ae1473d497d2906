package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// begun is when transactions began.
type begun struct {
	mu sync.Mutex
	at map[int64]beginning // by revision
}

type beginning struct {
	at   time.Time
	kind string
}

// commit makes a transaction. Hosts that get it before it is noted wait for the lock.
func (b *bench) commit(d store.Store, kind string, t store.Txn) (int64, error) {
	begin := time.Now()
	revision, err := d.Commit(context.Background(), t)
	b.begun.mu.Lock()
	defer b.begun.mu.Unlock()
	b.begun.at[revision] = beginning{begin, kind}
	return revision, err
}

// arrivals is how long transactions took to hosts. Those that arrive before their commit returns
// are noted when it does.
type arrivals struct {
	mu    sync.Mutex
	early map[int64][]time.Time
}

func newArrivals() *arrivals {
	return &arrivals{early: map[int64][]time.Time{}}
}

// note notes the transactions after a revision, up to another one.
func (g *begun) note(to *arrivals, after, upTo int64, now time.Time) {
	to.mu.Lock()
	defer to.mu.Unlock()
	for r := max(after, upTo-10000) + 1; r <= upTo; r++ {
		to.early[r] = append(to.early[r], now)
	}
}

// take returns the times so far, and begins again.
func (b *bench) take(from *arrivals) map[string][]time.Duration {
	from.mu.Lock()
	defer from.mu.Unlock()
	b.begun.mu.Lock()
	defer b.begun.mu.Unlock()
	times := map[string][]time.Duration{}
	for r, all := range from.early {
		if of, ok := b.begun.at[r]; ok {
			for _, at := range all {
				times[of.kind] = append(times[of.kind], at.Sub(of.at))
			}
		}
	}
	clear(from.early)
	clear(b.begun.at)
	return times
}

// podsOfHost is how many pods a host has.
func (b *bench) podsOfHost() int { return max(b.pods/b.hosts, 1) }

// podAddr is an address in the range of a host.
func podAddr(host, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 64 + byte(host>>8), byte(host), byte(n)})
}

// chunk is the entry with the pods of a host. The last one has just changed.
func (b *bench) chunk(host int) (store.Entry, error) {
	random := rand.New(rand.NewPCG(uint64(host), 1))
	var doc cluster.Pods
	for n := range b.podsOfHost() {
		pod := cluster.Pod{Name: fmt.Sprintf("k8s-%d/web-%08x", n, random.Uint32()),
			Addrs:  []netip.Addr{podAddr(host, n+2)},
			Labels: map[string]string{"app": []string{"web", "db", "cache"}[n%3], "tier": "front"}}
		if n == b.podsOfHost()-1 { // it has just begun, in the place of another one
			at := time.Since(b.begin)
			pod.Name = fmt.Sprintf("t-%019d", at)
			pod.Addrs[0] = podAddr(host, n+2+int(at/time.Microsecond)%max(250-n, 1))
			pod.Labels["app"] = []string{"web", "db", "cache"}[at%3]
		}
		doc.Pods = append(doc.Pods, pod)
	}
	value, err := cluster.Encode(&doc)
	return store.Entry{Key: fmt.Sprintf("%sh%d/0000", cluster.PodsTree, host), Value: value}, err
}

// fill writes all pods.
func (b *bench) fill(d store.Store) (last int64, err error) {
	var t store.Txn
	for i := range b.hosts {
		e, err := b.chunk(i)
		if err != nil {
			return 0, err
		}
		t.Put = append(t.Put, e)
		if len(t.Put) == 100 || i == b.hosts-1 {
			if last, err = d.Commit(context.Background(), t); err != nil {
				return 0, err
			}
			t = store.Txn{}
		}
	}
	return last, nil
}

// head is a version of 4 KiB: the digests of 50 scopes.
func (b *bench) head() (store.Entry, error) {
	b.versions++
	doc := cluster.Head{Number: cluster.Number{Epoch: 1, Count: b.versions}, By: "admin",
		Scopes: map[cluster.Scope]cluster.Digest{}}
	for i := range 50 {
		var digest cluster.Digest
		text := fmt.Sprintf("%064x", rand.Uint64())
		if _, err := hex.Decode(digest[:], []byte(text)); err != nil {
			return store.Entry{}, err
		}
		doc.Scopes[cluster.RoleScope(fmt.Sprint("role", i))] = digest
	}
	value, err := cluster.Encode(&doc)
	return store.Entry{Key: cluster.HeadKey, Value: value}, err
}

// heads writes versions, one after the other, until the context ends. each gets their revisions.
func (b *bench) heads(ctx context.Context, d store.Store, n int, pause time.Duration,
	each func(int64) error) error {
	for i := 0; i < n && ctx.Err() == nil; i++ {
		e, err := b.head()
		if err != nil {
			return err
		}
		revision, err := b.commit(d, "head", store.Txn{Put: []store.Entry{e}})
		if err == nil {
			err = each(revision)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func noCheck(int64) error { return nil }

// write replaces the pods of hosts at a rate, together in one transaction. As many hosts would,
// it does not wait for one transaction before it begins the next.
func (b *bench) write(d store.Store, rate, together, count int) (time.Duration, error) {
	begin := time.Now()
	running := make(chan struct{}, 64)
	failed := make(chan error, count)
	for n := 0; n < count; n += together {
		time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(rate))))
		var t store.Txn
		for i := range together {
			e, err := b.chunk((n + i) % b.hosts)
			if err != nil {
				return 0, err
			}
			t.Put = append(t.Put, e)
		}
		running <- struct{}{}
		go func() {
			_, err := b.commit(d, "pods", t)
			failed <- err
			<-running
		}()
	}
	for range (count + together - 1) / together {
		if err := <-failed; err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}
