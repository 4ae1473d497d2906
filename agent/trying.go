package agent

import (
	"context"
	"fmt"
	"time"
)

// The pauses between two tries of what failed double from the first to the last.
const (
	firstPause = time.Second
	lastPause  = time.Minute
	// settled is how long something has to run until its problem counts as solved.
	settled = 5 * time.Second
)

// keepTrying calls do at once, and after a failure again until it succeeds or the node ends.
// Meanwhile the status shows a problem with the hint of the error. do is never called twice at a
// time.
func (n *Node) keepTrying(ctx context.Context, about, advice string, do func() error) {
	try := func() bool {
		err := do()
		if err == nil {
			n.solved(about)
			return true
		}
		n.problemAbout(about, fmt.Sprintf("%s: %v; it is tried again", about, err),
			hintOf(err, advice))
		return false
	}
	if try() {
		return
	}
	n.trying.Go(func() {
		for pause := firstPause; rest(ctx, pause) && !try(); pause = min(2*pause, lastPause) {
		}
	})
}

// attend keeps trying to begin something that ends with the node.
func (n *Node) attend(ctx context.Context, about, advice string,
	begin func() (stop func() error, err error)) {
	n.keepTrying(ctx, about, advice, func() error {
		stop, err := begin()
		if err == nil && stop != nil {
			n.trying.Go(func() {
				<-ctx.Done()
				if err := stop(); err != nil {
					n.log.Warn("cannot end", "what", about, "err", err)
				}
			})
		}
		return err
	})
}

// keepRunning runs something that should only end with the node, again when it ends before. The
// problem is over when it has run for a while.
func (n *Node) keepRunning(ctx context.Context, about, advice string,
	run func(context.Context) error) {
	pause := firstPause
	for {
		began := time.Now()
		well := time.AfterFunc(settled, func() { n.solved(about) })
		err := run(ctx)
		well.Stop()
		if ctx.Err() != nil {
			return
		}
		n.problemAbout(about, fmt.Sprintf("%s: %v; it is tried again", about, err), advice)
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		if !rest(ctx, pause) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// rest waits. It returns false when ctx ends first.
func rest(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
