package store

import (
	"context"
	"errors"
	"time"
)

// The pause before the first try after a failure is at most firstPause, and doubles up to maxPause.
const (
	firstPause = 200 * time.Millisecond
	maxPause   = 30 * time.Second
)

// Pause returns how long to wait after a number of failures in a row, from 1. It is a random part
// of a growing time, so that a thousand hosts that lose the same store do not return together.
// random is in [0, 1).
func Pause(failures int, random float64) time.Duration {
	limit := maxPause
	if failures < 16 {
		limit = min(firstPause<<max(failures-1, 0), maxPause)
	}
	return time.Duration(random * float64(limit))
}

// Follower keeps a guarded copy up to date. The copy belongs to it while Run runs.
type Follower struct {
	Store Store
	Name  string   // the subtree
	Copy  *Guarded // its revision is where the follower begins; 0: with everything
	Limit int      // of the copy in bytes, as Guarded.Fits takes it; 0: none

	// Changed gets what changes for the host, at the revision of Copy.Stored(); maybe nothing.
	Changed func(changes []Change)

	// Wait returns after a pause that depends on the failures in a row, or with the context's
	// error. See Pause.
	Wait func(ctx context.Context, failures int) error

	// Failed gets every error that interrupts the follower, which then tries again.
	Failed func(err error)
}

// Run follows the store until the context ends, and returns the context's error. When the store
// cannot continue from the copy's revision, Run reads everything and applies the difference. What
// does not fit interrupts it (LargeError), and then it reads everything: that may fit by then.
func (f *Follower) Run(ctx context.Context) error {
	whole := f.Copy.Stored().Revision == 0
	for failures := 0; ctx.Err() == nil; {
		before := f.Copy.Stored().Revision
		err := f.follow(ctx, whole)
		if ctx.Err() != nil {
			break
		}
		f.Failed(err)
		var large *LargeError
		behind := errors.Is(err, ErrCompacted) || errors.Is(err, ErrBehind) ||
			errors.As(err, &large)
		if whole = behind || f.Copy.Stored().Revision == 0; f.Copy.Stored().Revision != before {
			failures = 0
		}
		failures++
		if err := f.Wait(ctx, failures); err != nil {
			break
		}
	}
	return ctx.Err()
}

// follow reads everything if whole is set, then follows until the first error.
func (f *Follower) follow(ctx context.Context, whole bool) error {
	if whole {
		s, err := f.Store.Read(ctx, f.Name, 0)
		if err == nil && f.Limit > 0 {
			err = f.Copy.FitsWhole(s, f.Limit)
		}
		if err != nil {
			return err
		}
		f.Changed(f.Copy.Replace(s))
	}
	for b, err := range f.Store.Watch(ctx, f.Name, f.Copy.Stored().Revision) {
		if err == nil && f.Limit > 0 {
			err = f.Copy.Fits(b, f.Limit)
		}
		if err != nil {
			return err
		}
		f.Changed(f.Copy.Step(b))
	}
	return ctx.Err()
}
