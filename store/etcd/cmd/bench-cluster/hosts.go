package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
)

// host is a host with the real client and a whole copy.
type host struct {
	client *client.Client
	copy   *store.Guarded
	at     atomic.Int64 // revision
	sum    store.Digest // of what it had when it was stopped
	stop   func()
}

// fleet is all hosts.
type fleet struct {
	bench  *bench
	config []client.Config
	hosts  []*host
	bytes  atomic.Int64 // that arrived, of TLS
	times  *arrivals
	ca     *identity.CA
}

// counting counts what arrives.
type counting struct {
	net.Conn
	bytes *atomic.Int64
}

// Read implements net.Conn.
func (c counting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

// newFleet makes the credentials of all hosts, and the entries that admit them.
func (b *bench) newFleet(d store.Store) (*fleet, error) {
	f := &fleet{bench: b, times: newArrivals()}
	text, err := os.ReadFile(filepath.Join(b.dir, "store", "ca.pem"))
	if err != nil {
		return nil, err
	}
	ca, err := identity.ParseCA(text)
	if err != nil {
		return nil, err
	}
	f.ca = ca
	var t store.Txn
	for i := range b.hosts {
		name := fmt.Sprintf("h%d", i)
		c, err := identity.Issue(ca, identity.ID{Kind: identity.Host, Name: name})
		if err != nil {
			return nil, err
		}
		p, err := c.Peer()
		if err != nil {
			return nil, err
		}
		node := cluster.Node{Name: name, Serial: cluster.Serial(p.Serial), TLS: cluster.Key(p.Key),
			WireGuard: cluster.Key(p.Key), Roles: []string{"web"}, Labels: []string{"app", "tier"},
			Ranges: []netip.Prefix{netip.PrefixFrom(podAddr(i, 0), 24)}}
		if err := node.Sign(ca.Key()); err != nil {
			return nil, err
		}
		value, err := cluster.Encode(&node)
		if err != nil {
			return nil, err
		}
		t.Put = append(t.Put, store.Entry{Key: cluster.NodeTree + name, Value: value})
		if len(t.Put) == 100 || i == b.hosts-1 {
			if _, err := d.Commit(context.Background(), t); err != nil {
				return nil, err
			}
			t = store.Txn{}
		}
		secured, err := c.ClientTLS()
		if err != nil {
			return nil, err
		}
		f.config = append(f.config, client.Config{Name: name, TLS: secured,
			Stores: func() []string { return []string{b.address} },
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := b.dial(ctx, network, address)
				return counting{conn, &f.bytes}, err
			}})
	}
	return f, nil
}

// start lets every host follow from its copy, or from nothing.
func (f *fleet) start() error {
	if f.hosts == nil {
		f.hosts = make([]*host, f.bench.whole)
	}
	for i, config := range f.config[:f.bench.whole] {
		c, err := client.New(config)
		if err != nil {
			return err
		}
		h := f.hosts[i]
		if h == nil {
			h = &host{copy: store.NewGuarded(cluster.Guard(), store.Snapshot{})}
			f.hosts[i] = h
		}
		h.client = c
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Follow(ctx, client.Follow{Copy: h.copy.Stored, Step: func(b store.Batch) error {
				f.step(h, b)
				return nil
			}, Failed: func(err error) {}})
		}()
		h.stop = func() {
			cancel()
			<-done
			_ = c.Close()
		}
	}
	return nil
}

func (f *fleet) stop() {
	var group sync.WaitGroup
	for _, h := range f.hosts {
		group.Go(h.stop)
		h.at.Store(0)
	}
	group.Wait()
	for _, h := range f.hosts {
		h.sum = h.copy.Stored().Sum()
	}
}

// startLight lets the hosts without a copy follow from what the first one had.
func (f *fleet) startLight() error {
	for _, c := range f.config[f.bench.whole:] {
		l, err := f.dialLight(context.Background(), c, f.hosts[0])
		if err != nil {
			return err
		}
		go l.run() // it ends with the process
	}
	return nil
}

// step applies a step, then notes how long it took.
func (f *fleet) step(h *host, b store.Batch) {
	before := h.at.Load()
	h.copy.Step(b)
	if before > 0 {
		f.arrived(before, b.Revision, time.Now())
	}
	h.at.Store(b.Revision)
}

// arrived notes the transactions that a host got between two revisions.
func (f *fleet) arrived(after, upTo int64, now time.Time) {
	f.bench.begun.note(f.times, after, upTo, now)
}

// current waits until every host is at a revision, and returns how long that took.
func (f *fleet) current(revision int64) (time.Duration, error) {
	begin := time.Now()
	for _, h := range f.hosts {
		for h.at.Load() < revision {
			if time.Since(begin) > 2*time.Minute {
				return 0, fmt.Errorf("a host is at %d, not at %d: %+v", h.at.Load(), revision,
					h.client.State())
			}
			time.Sleep(time.Millisecond)
		}
	}
	return time.Since(begin), nil
}
