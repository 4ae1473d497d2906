package problem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The pauses between two tries of what failed double from the first to the last.
const (
	firstPause = time.Second
	lastPause  = time.Minute
	// settled is how long something has to run until its problem counts as solved.
	settled = 5 * time.Second
)

// Retrier repeats failed steps until they succeed, and records their failures in Problems.
type Retrier struct {
	Problems *List
	running  sync.WaitGroup // counts what is retried until it succeeds, and what Start ends
}

// Wait waits until nothing is retried any more; the contexts of the retries have ended.
func (r *Retrier) Wait() { r.running.Wait() }

// ErrNoted is the error of something that has noted its problems itself, and is to be tried again.
var ErrNoted = errors.New("see weir status")

// Until calls do at once, and after a failure again until it succeeds or the node ends.
// Meanwhile the status shows a problem with the hint of the error, unless that is ErrNoted. do is
// never called twice at a time.
func (r *Retrier) Until(ctx context.Context, about, advice string, do func() error) {
	try := func() bool {
		err := do()
		if err == nil {
			r.Problems.Solved(about)
			return true
		}
		if errors.Is(err, ErrNoted) {
			r.Problems.Solved(about)
			return false
		}
		r.Problems.Set(about, fmt.Sprintf("%s: %v; Weir tries again", about, err),
			Hint(err, advice))
		return false
	}
	if try() {
		return
	}
	r.running.Go(func() {
		for pause := firstPause; Sleep(ctx, pause) && !try(); pause = min(2*pause, lastPause) {
		}
	})
}

// Start retries to start something that runs until the node ends.
func (r *Retrier) Start(ctx context.Context, about, advice string,
	begin func() (stop func() error, err error)) {
	r.Until(ctx, about, advice, func() error {
		stop, err := begin()
		if err == nil && stop != nil {
			r.running.Go(func() {
				<-ctx.Done()
				if err := stop(); err != nil {
					r.Problems.Log.Warn("an error while stopping", "about", about, "err", err)
				}
			})
		}
		return err
	})
}

// Run runs something that should run until the node ends, and restarts it if it ends earlier. The
// problem ends when it has run for a while.
func (r *Retrier) Run(ctx context.Context, about, advice string,
	run func(context.Context) error) {
	pause := firstPause
	for {
		began := time.Now()
		well := time.AfterFunc(settled, func() { r.Problems.Solved(about) })
		err := run(ctx)
		well.Stop()
		if ctx.Err() != nil {
			return
		}
		r.Problems.Set(about, fmt.Sprintf("%s: %v; Weir tries again", about, err), advice)
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		if !Sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// Sleep waits. It returns false when ctx ends first.
func Sleep(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
