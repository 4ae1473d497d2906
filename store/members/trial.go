package members

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// trialGrace is how long after the end of a trial weir-store takes the version back: the host that
// loaded it does so at its end.
const trialGrace = 10 * time.Second

// trialEvery is how often the head is read.
const trialEvery = 2 * time.Second

// TrialExpiry takes a version back that is on trial for too long: the one who loaded it is gone.
// The time is that of this process since it first saw the version. Hosts have gone back by then by
// their own timers.
type TrialExpiry struct {
	Store store.Store
	Now   func() time.Time // monotonic
	Log   func(err error)

	revision int64 // of the head that is on trial, since first
	first    time.Time
}

// Run looks at the head until the context ends.
func (x *TrialExpiry) Run(ctx context.Context) error {
	said := ""
	return repeat(ctx, trialEvery, func() {
		err := x.RevertExpired(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error() // once, not every two seconds
			x.Log(fmt.Errorf("trial: %w", err))
		}
	})
}

// RevertExpired takes the version back if it is time. The transaction compares the head: a
// confirmation that comes first wins.
func (x *TrialExpiry) RevertExpired(ctx context.Context) error {
	head, revision, ok, err := one[cluster.Head](ctx, x.Store, cluster.HeadKey)
	if err != nil || !ok || head.Trial == nil {
		return err
	}
	now := x.Now()
	if revision != x.revision {
		x.revision, x.first = revision, now
	}
	if now.Sub(x.first) < head.Trial.Duration()+trialGrace {
		return nil
	}
	e, err := entry(cluster.HeadKey, &head.Trial.Revert)
	if err != nil {
		return err
	}
	_, err = x.Store.Commit(ctx, store.Txn{Put: []store.Entry{e},
		Compare: []store.Compare{{Key: cluster.HeadKey, Revision: revision}}})
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	if err == nil {
		x.Log(fmt.Errorf("version %v was not confirmed: version %v takes its place", head.Number,
			head.Trial.Revert.Number))
	}
	return err
}
