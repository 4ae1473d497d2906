package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
)

// direct is a client of the model, limited as weir-store limits a host. It can be cut off.
type direct struct {
	store.Store
	name    string
	mu      sync.Mutex
	cut     bool
	cuts    int                // how often it was cut off
	stalled bool               // it follows nothing, and writes
	end     context.CancelFunc // of what follows
	full    atomic.Int64       // of the database, in percent
}

func newDirect(m store.Store, name string) *direct {
	return &direct{Store: store.Limit(m, cluster.HostGrants(name)), name: name}
}

// away cuts the client off, or lets it through again.
func (d *direct) away(cut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cut {
		d.cuts++
	}
	if d.cut = cut; cut && d.end != nil {
		d.end()
	}
}

// setStalled has the client follow nothing, or follow again.
func (d *direct) setStalled(stalled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stalled = stalled; stalled && d.end != nil {
		d.end()
	}
}

func (d *direct) isStalled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cut || d.stalled
}

func (d *direct) isAway() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut {
		return store.ErrUnavailable
	}
	return nil
}

func (d *direct) Read(ctx context.Context, name string, revision int64) (store.Snapshot, error) {
	if err := d.isAway(); err != nil {
		return store.Snapshot{}, err
	}
	return d.Store.Read(ctx, name, revision)
}

func (d *direct) Commit(ctx context.Context, t store.Txn) (int64, error) {
	if err := d.isAway(); err != nil {
		return 0, err
	}
	if err := cluster.HostMayWrite(d.name, t); err != nil {
		return 0, err
	}
	return d.Store.Commit(ctx, t)
}

func (d *direct) State() client.State {
	err := d.isAway()
	return client.State{Connected: err == nil, Err: err, PercentFull: int(d.full.Load())}
}

// Follow follows as the client does: by revision, or by a difference.
func (d *direct) Follow(ctx context.Context, f client.Follow) error {
	for whole := true; ctx.Err() == nil; {
		if d.isStalled() {
			problem.Sleep(ctx, 5*time.Millisecond)
			continue
		}
		d.mu.Lock()
		cuts := d.cuts
		d.mu.Unlock()
		// The real client compares digests: the revision does not tell that the store is another.
		whole = whole || d.epochChanged(ctx, f.Epoch())
		one, end := context.WithCancel(ctx)
		d.mu.Lock()
		d.end = end
		again := d.cuts != cuts || d.stalled
		d.mu.Unlock()
		if again {
			end()
			continue
		}
		err := d.followOnce(one, f, whole)
		end()
		whole = errors.Is(err, store.ErrCompacted) || errors.Is(err, store.ErrBehind)
		f.Failed(err)
		problem.Sleep(ctx, 5*time.Millisecond)
	}
	return ctx.Err()
}

// epochChanged reports whether the store is another one than the copy's: it was restored.
func (d *direct) epochChanged(ctx context.Context, epoch uint64) bool {
	s, err := d.Read(ctx, cluster.IdentityKey, 0)
	return err != nil || epochOf(s) != epoch
}

func epochOf(s store.Snapshot) uint64 {
	for _, e := range s.Entries {
		if i, err := cluster.Decode[cluster.Identity](e.Value); err == nil &&
			e.Key == cluster.IdentityKey {
			return i.Epoch
		}
	}
	return 0
}

func (d *direct) followOnce(ctx context.Context, f client.Follow, whole bool) error {
	step := func(b store.Batch) error {
		if err := f.Fits(b); err != nil {
			return err
		}
		return f.Step(b)
	}
	if whole {
		s, err := d.Read(ctx, cluster.Watched, 0)
		if err != nil {
			return err
		}
		if epoch := epochOf(s); epoch > 0 && f.Epoch() > epoch {
			return &client.EarlierError{Address: "the store", Epoch: epoch, Have: f.Epoch()}
		}
		if err := step(store.Batch{Revision: s.Revision,
			Changes: f.Copy().Diff(store.NewCopy(s))}); err != nil {
			return err
		}
	}
	for b, err := range d.Store.Watch(ctx, cluster.Watched, f.Copy().Revision) {
		if err != nil {
			return err
		}
		if err := step(b); err != nil {
			return err
		}
	}
	return ctx.Err()
}
