package agent

import (
	"context"
	"errors"
	"fmt"

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
