package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/internal/nl"
)

// watchLinks follows interfaces, addresses and routes until ctx ends. It returns when everything
// was listed once; then nothing ends it any more.
func (n *Node) watchLinks(ctx context.Context) error {
	first := make(chan error, 1)
	watch := func(ctx context.Context) error {
		n.links.listAgain()
		err := nl.Watch(ctx, nil, n.links.report)
		if err == nil {
			err = errors.New("it ended")
		}
		select {
		case first <- err:
		default:
		}
		return err
	}
	go n.retry.Run(ctx, "the interfaces are not followed", "weir doctor", watch)
	go n.retry.Run(ctx, "the routes are not followed", "weir doctor",
		func(ctx context.Context) error {
			return nl.WatchRoutes(ctx, nil, n.routesChanged)
		})
	select {
	case <-n.links.wake:
		return nil
	case err := <-first:
		return fmt.Errorf("watch the interfaces: %w", err)
	}
}

// watchdog signals the service manager, as often as it wants, that the node is alive: that its loop
// turns and that its locks can be had. It ends with ctx. Requests to the kernel that are made under
// these locks, or by the loop, end in time (package routes).
func (n *Node) watchdog(ctx context.Context) {
	every := watchdog()
	if every <= 0 {
		return
	}
	go func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if n.isWell(ctx) {
				notify("WATCHDOG=1")
			}
		}
	}()
}

// isWell waits until every lock that matters was free once and the loop has turned. It returns
// false when ctx ends first.
func (n *Node) isWell(ctx context.Context) bool {
	n.book.mu.Lock()
	n.book.mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
	n.following.Lock()
	n.following.Unlock() //lint:ignore SA2001 as above
	n.mu.Lock()
	n.mu.Unlock() //lint:ignore SA2001 as above
	n.engine.Attached()
	if now := time.Now(); n.peers.stuck(now) || n.pods.Load().stuck(now) {
		return false
	}
	select {
	case n.pulse <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// lockPatience is how long the lock of the peers, or of the pods, may be unavailable until the
// agent is restarted. Traffic needs neither, and some work under these locks is long: many peers
// and routes, each a request to a kernel that may be slow to answer.
const lockPatience = 5 * time.Minute

// patience notices that something is no longer available, without waiting for it. One goroutine
// uses it.
type patience struct {
	asked time.Time   // when the last question began that has no answer yet
	done  uint64      // how much was done then
	open  atomic.Bool // the question has no answer yet
}

// over asks in the background, one question at a time, and reports whether the last one has had no
// answer for lockPatience although nothing was done meanwhile.
func (p *patience) over(now time.Time, done uint64, ask func()) bool {
	switch {
	case p.open.CompareAndSwap(false, true):
		p.asked, p.done = now, done
		go func() {
			ask()
			p.open.Store(false)
		}()
	case p.done != done:
		p.asked, p.done = now, done
	}
	return now.Sub(p.asked) >= lockPatience
}

// stuck reports that the lock of the peers is no longer available. Only the watchdog calls it.
func (p *peers) stuck(now time.Time) bool {
	return p.watched.over(now, p.set.Load(), func() {
		p.mu.Lock()
		p.mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
	})
}

// stuck reports that the locks of the pods are no longer available. Only the watchdog calls it.
func (p *pods) stuck(now time.Time) bool {
	return p != nil && p.watched.over(now, 0, func() {
		p.manager.List()
		p.labels.all()
	})
}
