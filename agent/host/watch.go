package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/nl"
)

// endingPause is how long after the report of an interface or an address its routes are read again.
// The kernel reports it first, and removes the routes then (__dev_notify_flags in net/core/dev.c).
const endingPause = 50 * time.Millisecond

// Watch follows interfaces, addresses and routes until ctx ends. It returns when everything
// was listed once, local routes too; then nothing ends it any more.
func Watch(ctx context.Context, retry *problem.Retrier, l *Links, r *Routes) error {
	l.routesEnd = func() {
		time.AfterFunc(endingPause, func() { r.MarkChanged(nl.RouteChange{Local: true}) })
	}
	first := make(chan error, 1)
	watch := func(ctx context.Context) error {
		l.listAgain()
		err := nl.Watch(ctx, nil, l.Report)
		if err == nil {
			err = errors.New("it ended")
		}
		select {
		case first <- err:
		default:
		}
		return err
	}
	go retry.Run(ctx, "the interfaces are not followed", "weir doctor", watch)
	go retry.Run(ctx, "the routes are not followed", "weir doctor",
		func(ctx context.Context) error {
			return nl.WatchRoutes(ctx, nil, r.MarkChanged)
		})
	select {
	case <-l.wake:
		if err := l.FollowLocal(); err != nil {
			return fmt.Errorf("watch the routes: %w", err)
		}
		return nil
	case err := <-first:
		return fmt.Errorf("watch the interfaces: %w", err)
	}
}
