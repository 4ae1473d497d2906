package host

import (
	"context"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/internal/nl"
)

// SetQdiscLinks gives the engine the interfaces with queueing disciplines. Those of pods pass by
// them only through the stack.
func SetQdiscLinks(e Engine) error {
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	links, err := conn.LinksWithQdisc()
	if err != nil {
		return err
	}
	indexes := make([]uint32, len(links))
	for i, l := range links {
		indexes[i] = uint32(l)
	}
	return e.SetQdiscLinks(indexes)
}

// WatchQdiscs follows the queueing disciplines until ctx ends.
func WatchQdiscs(ctx context.Context, retry *problem.Retrier, e Engine, list *problem.List) {
	const about = "queueing disciplines"
	retry.Run(ctx, "the queueing disciplines are not followed", "weir doctor",
		func(ctx context.Context) error {
			return nl.WatchQdiscs(ctx, func() {
				if err := SetQdiscLinks(e); err != nil {
					list.Set(about, "queueing disciplines: "+err.Error(), "weir doctor")
					return
				}
				list.Solved(about)
			})
		})
}
