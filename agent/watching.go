package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/internal/nl"
)

// slowest is how long a request to the kernel may take that is made under a lock that the watchdog
// looks at.
const slowest = 10 * time.Second

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
	go n.keepRunning(ctx, "the interfaces are not followed", "weir doctor", watch)
	go n.keepRunning(ctx, "the routes are not followed", "weir doctor", func(ctx context.Context) error {
		return nl.WatchRoutes(ctx, nil, n.routesChanged)
	})
	select {
	case <-n.links.wake:
		return nil
	case err := <-first:
		return fmt.Errorf("watch the interfaces: %w", err)
	}
}

// watchdog tells the service manager, as often as it wants, that the node is well: that its loop
// turns and that nobody sits on its locks. It ends with ctx. Requests to the kernel that are made
// under these locks end within slowest.
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
	n.book.mu.Unlock() //lint:ignore SA2001 that it can be had is all we want to know
	n.following.Lock()
	n.following.Unlock() //lint:ignore SA2001 as above
	n.mu.Lock()
	n.mu.Unlock() //lint:ignore SA2001 as above
	n.engine.Attached()
	select {
	case n.pulse <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
