package members

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// TokenExpiry deletes tokens whose time is over. The time is that of this process since it first
// saw the token: no time of day is compared, and a weir-store that is started again begins again.
type TokenExpiry struct {
	Store store.Store
	Now   func() time.Time // monotonic
	Log   func(err error)

	seen map[string]time.Time // when each key was seen first
}

// expiryEvery is how often the tokens are looked at.
const expiryEvery = 20 * time.Second

// Run looks at the tokens until the context ends.
func (x *TokenExpiry) Run(ctx context.Context) error {
	return repeat(ctx, expiryEvery, func() {
		if err := x.DeleteExpired(ctx); err != nil && ctx.Err() == nil {
			x.Log(fmt.Errorf("tokens: %w", err))
		}
	})
}

// repeat calls do now and in intervals until the context ends.
func repeat(ctx context.Context, every time.Duration, do func()) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// DeleteExpired deletes the tokens whose time is over.
func (x *TokenExpiry) DeleteExpired(ctx context.Context) error {
	got, err := x.Store.Read(ctx, cluster.InviteTree, 0)
	if err != nil {
		return err
	}
	now, known := x.Now(), map[string]time.Time{}
	for _, e := range got.Entries {
		invite, err := cluster.Decode[cluster.Invite](e.Value)
		if err != nil {
			x.Log(fmt.Errorf("%s: %w", e.Key, err))
			continue
		}
		first, ok := x.seen[e.Key]
		if !ok {
			first = now
		}
		known[e.Key] = first
		if now.Sub(first) < time.Duration(invite.Seconds)*time.Second {
			continue
		}
		_, err = x.Store.Commit(ctx, store.Txn{Delete: []string{e.Key},
			Compare: []store.Compare{{Key: e.Key, Revision: e.Revision}}})
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	x.seen = known
	return nil
}
