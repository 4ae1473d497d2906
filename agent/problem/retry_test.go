package problem

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/weirnet/weir/internal/nstest"
)

// TestWhatFailsIsTriedAgain: until something succeeds it is one problem, and then none; the end of
// the node ends the trying.
func TestWhatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &List{Log: slog.New(slog.DiscardHandler)}
		r := &Retrier{Problems: l}
		ctx, cancel := context.WithCancel(t.Context())
		var tried atomic.Int64
		r.Until(ctx, "the thing", "wait", func() error {
			if tried.Add(1) < 2 {
				return errors.New("no space")
			}
			return nil
		})
		if p := l.All(); len(p) != 1 ||
			p[0].What != "the thing: no space; Weir tries again" {
			t.Errorf("problems: %+v", p)
		}
		nstest.Eventually(t, "it succeeds", func() bool {
			return tried.Load() == 2 && len(l.All()) == 0
		})
		var noted atomic.Int64
		r.Until(ctx, "a third", "wait", func() error {
			if noted.Add(1) < 2 {
				return ErrNoted
			}
			return nil
		})
		if p := l.All(); len(p) != 0 {
			t.Errorf("what notes its own problems: %+v", p)
		}
		nstest.Eventually(t, "Weir tries again", func() bool { return noted.Load() == 2 })
		r.Until(ctx, "another", "wait", func() error { return errors.New("never") })
		cancel()
		r.Wait()
	})
}

// TestWatchersBeginAgain: a watcher that ends is begun again, and its problem ends when it has run
// for a while.
func TestWatchersBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &List{Log: slog.New(slog.DiscardHandler)}
		r := &Retrier{Problems: l}
		ctx, cancel := context.WithCancel(t.Context())
		var begun atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx, "events", "weir doctor", func(ctx context.Context) error {
				if begun.Add(1) == 1 {
					return errors.New("the ring is gone")
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		nstest.Eventually(t, "it is a problem", func() bool { return len(l.All()) == 1 })
		nstest.Eventually(t, "it is begun again, and no problem any more", func() bool {
			return begun.Load() == 2 && len(l.All()) == 0
		})
		cancel()
		<-done
	})
}
