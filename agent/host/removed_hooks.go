package host

import (
	"context"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/nl"
)

// Watch reports by Suspect until ctx ends when another program may have removed a filter. The
// kernel reports no end of a link of tcx: Recheck is to be called now and then, too.
func (h *Hooks) Watch(ctx context.Context, retry *problem.Retrier) {
	retry.Run(ctx, "the filters of the interfaces are not followed", "weir doctor",
		func(ctx context.Context) error {
			return nl.WatchQdiscs(ctx, func() {
				select {
				case h.suspect <- struct{}{}:
				default:
				}
			})
		})
}

// Suspect receives an element when Recheck is to be called.
func (h *Hooks) Suspect() <-chan struct{} { return h.suspect }

// Recheck attaches hooks again that another program has removed, and notes who else decides.
func (h *Hooks) Recheck() {
	const about = "removed hooks"
	removed, err := h.config.Engine.RemovedHooks()
	if err != nil {
		h.config.Problems.Set(about, "it is not known whether the hooks are still there: "+
			err.Error(), "weir doctor")
	} else {
		h.config.Problems.Solved(about)
	}
	h.keepLocal()
	h.NoteForeign()
	if len(removed) == 0 {
		return
	}
	again := map[int]bool{}
	for _, index := range removed {
		again[int(index)] = true
		h.config.Log.Warn("another program removed the hooks: no rules applied until now",
			"interface", h.config.Links.Name(index))
	}
	h.config.Links.keepRemade(again)
	h.Follow()
}

// keepLocal puts the hook of the loopback back if another program has removed it.
func (h *Hooks) keepLocal() {
	const about = "the loopback's hook"
	removed, err := h.config.Engine.KeepLocal()
	if removed {
		h.config.Log.Warn("another program removed the hook of the loopback: the host did not " +
			"reach its own published ports until now")
	}
	if err != nil {
		h.config.Problems.Set(about, "the host may not reach its own published ports: "+
			err.Error(), "Weir tries again; weir doctor")
	} else {
		h.config.Problems.Solved(about)
	}
}
