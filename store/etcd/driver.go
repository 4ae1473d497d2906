// Package etcd is the driver of package store for etcd, embedded or not. It is a module of its own:
// only weir-store imports it, so that the agents carry neither gRPC nor etcd.
//
// Open connects a Driver to an etcd; Start runs a member in this process that listens on unix
// sockets only. SetRole makes the grants of package store a role, so that etcd itself refuses what
// they do not permit.
package etcd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/weirnet/weir/store"
)

// page is how many entries are read at once, each of 1.5 MiB at most, and keysPage how many keys.
const (
	page     = 100
	keysPage = 10000
)

// DefaultSilence is how long etcd may be silent before a watch or a call ends.
const DefaultSilence = 15 * time.Second

// Config says how to reach an etcd. Certificates are in the client's configuration.
type Config struct {
	Client  clientv3.Config
	Silence time.Duration // 0: DefaultSilence
	// MaxRead bounds what Read returns, in bytes (store.Entry.Cost): more is a *store.LargeError.
	// 0: only the database bounds it.
	MaxRead int
}

// Driver is a store.Store on etcd.
type Driver struct {
	client  *clientv3.Client
	silence time.Duration
	maxRead int
	secured *handshakes // nil without TLS
}

var _ store.Store = (*Driver)(nil)

// Open makes a driver. It does not wait for etcd. Close it.
func Open(c Config) (*Driver, error) {
	if c.Silence == 0 {
		c.Silence = DefaultSilence
	}
	if c.Client.Logger == nil {
		c.Client.Logger = zap.NewNop()
	}
	// gRPC's own pause grows to two minutes, which a restart of etcd must not cost.
	c.Client.DialOptions = append(slices.Clip(c.Client.DialOptions),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: c.Silence,
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6,
				Jitter: 0.5, MaxDelay: time.Second}}))
	d := &Driver{silence: c.Silence, maxRead: c.MaxRead}
	if c.Client.TLS != nil {
		d.secured = newHandshakes(c.Client.TLS)
		c.Client.DialOptions = append(c.Client.DialOptions,
			grpc.WithTransportCredentials(d.secured))
	}
	var err error
	if d.client, err = clientv3.New(c.Client); err != nil {
		return nil, err
	}
	return d, nil
}

// Client returns the connection, for what package store does not know.
func (d *Driver) Client() *clientv3.Client { return d.client }

// Close ends the connection and every watch.
func (d *Driver) Close() error { return d.client.Close() }

// below returns the option that makes a request about a name one about its subtree.
func below(name string) []clientv3.OpOption {
	if !strings.HasSuffix(name, "/") {
		return nil
	}
	return []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(name))}
}

// Read implements store.Store. It reads by pages of one revision.
func (d *Driver) Read(ctx context.Context, name string, revision int64) (store.Snapshot, error) {
	s := store.Snapshot{Revision: revision}
	end, size := below(name), 0
	for from, more := name, true; more; {
		opts := append(slices.Clip(end), clientv3.WithLimit(page), clientv3.WithRev(s.Revision))
		call, cancel := context.WithTimeout(ctx, d.silence)
		got, err := d.client.Get(call, from, opts...)
		cancel()
		if err != nil {
			return store.Snapshot{}, d.translate(ctx, err)
		}
		if s.Revision == 0 {
			s.Revision = got.Header.Revision
		}
		for _, kv := range got.Kvs {
			e := store.Entry{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision}
			s.Entries = append(s.Entries, e)
			size += e.Cost()
		}
		if d.maxRead > 0 && size > d.maxRead {
			return store.Snapshot{}, fmt.Errorf("read %s: %w", name,
				&store.LargeError{Size: size, Limit: d.maxRead})
		}
		if more = got.More; more {
			from = s.Entries[len(s.Entries)-1].Key + "\x00"
		}
	}
	return s, nil
}

// Keys returns what is below a name without the values, which may be larger than the memory. Its
// pages may be of several revisions.
func (d *Driver) Keys(ctx context.Context, name string) (all []store.Entry, err error) {
	end := append(below(name), clientv3.WithLimit(keysPage), clientv3.WithKeysOnly())
	for from, more := name, true; more; {
		call, cancel := context.WithTimeout(ctx, d.silence)
		got, err := d.client.Get(call, from, end...)
		cancel()
		if err != nil {
			return nil, d.translate(ctx, err)
		}
		for _, kv := range got.Kvs {
			all = append(all, store.Entry{Key: string(kv.Key), Revision: kv.ModRevision})
		}
		if more = got.More; more {
			from = all[len(all)-1].Key + "\x00"
		}
	}
	return all, nil
}

// Commit implements store.Store.
func (d *Driver) Commit(ctx context.Context, t store.Txn) (int64, error) {
	if err := t.Check(); err != nil {
		return 0, err
	}
	var conditions []clientv3.Cmp
	var then, otherwise []clientv3.Op
	for _, c := range t.Compare {
		conditions = append(conditions,
			clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Revision))
		otherwise = append(otherwise, clientv3.OpGet(c.Key, clientv3.WithKeysOnly()))
	}
	for _, p := range t.Put {
		then = append(then, clientv3.OpPut(p.Key, string(p.Value)))
	}
	for _, key := range t.Delete {
		then = append(then, clientv3.OpDelete(key))
	}
	call, cancel := context.WithTimeout(ctx, d.silence)
	defer cancel()
	done, err := d.client.Txn(call).If(conditions...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		return 0, d.translate(ctx, err)
	}
	if !done.Succeeded {
		return 0, conflict(t.Compare, done)
	}
	return done.Header.Revision, nil
}

// translate returns an error of package store for one of etcd, with the reason if there is no
// connection.
func (d *Driver) translate(ctx context.Context, err error) error {
	return d.secured.explain(translate(ctx, err))
}

// conflict returns the first comparison that was false.
func conflict(compared []store.Compare, done *clientv3.TxnResponse) error {
	for i, c := range compared {
		have := int64(0)
		for _, kv := range done.Responses[i].GetResponseRange().Kvs {
			have = kv.ModRevision
		}
		if have != c.Revision {
			return &store.ConflictError{Compare: c, Have: have}
		}
	}
	return store.ErrConflict
}

// batches cuts the events of a response into transactions.
func batches(events []*clientv3.Event) (list []store.Batch) {
	for _, e := range events {
		ch := store.Change{Deleted: e.Type == clientv3.EventTypeDelete, Entry: store.Entry{
			Key: string(e.Kv.Key), Value: e.Kv.Value, Revision: e.Kv.ModRevision}}
		if n := len(list); n == 0 || list[n-1].Revision != ch.Revision {
			list = append(list, store.Batch{Revision: ch.Revision})
		}
		last := &list[len(list)-1]
		last.Changes = append(last.Changes, ch)
	}
	for _, b := range list {
		slices.SortFunc(b.Changes, func(a, b store.Change) int { return cmp.Compare(a.Key, b.Key) })
	}
	return list
}
