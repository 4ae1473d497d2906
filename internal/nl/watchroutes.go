package nl

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// routesPause bundles changes: a routing daemon that starts sends thousands.
const routesPause = 50 * time.Millisecond

// RouteChange says which kinds of routes may have come or gone, beside others.
type RouteChange struct {
	MTU   bool // with an MTU of their own
	Local bool // those of LocalRoutes
}

// WatchRoutes calls changed once at the beginning, and then whenever routes of ns (the namespace of
// the calling thread when ns is nil) have changed. It does so at most about twenty times a second,
// until ctx ends. It reports that something changed and not what: list the routes. All calls come
// from the goroutine that called WatchRoutes.
func WatchRoutes(ctx context.Context, ns *NS, changed func(RouteChange)) error {
	return follow(ctx, ns, func(ns *NS) error { return watchRoutesOnce(ctx, ns, changed) })
}

// watchRoutesOnce subscribes and follows until notifications were lost (nil) or something failed.
func watchRoutesOnce(ctx context.Context, ns *NS, changed func(RouteChange)) error {
	updates := make(chan netlink.RouteUpdate, 64)
	done := make(chan struct{})
	at := netns.NsHandle(ns.Fd())
	err := netlink.RouteSubscribeWithOptions(updates, done,
		netlink.RouteSubscribeOptions{Namespace: &at, ReceiveBufferSize: watchBuffer})
	if err != nil {
		return fmt.Errorf("watch routes: %w", err)
	}
	defer drain(updates)
	defer close(done)
	changed(RouteChange{MTU: true, Local: true})
	for {
		var what RouteChange
		note := func(u netlink.RouteUpdate) {
			what.MTU = what.MTU || u.MTU != 0
			what.Local = what.Local || madeLocal(u.Table, u.Route.Type, int(u.Protocol))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u, ok := <-updates:
			if !ok { // the kernel lost some: ENOBUFS
				return nil
			}
			note(u)
		}
		for pause := time.After(routesPause); pause != nil; {
			select {
			case <-pause:
				pause = nil
			case u, ok := <-updates:
				if !ok {
					return nil
				}
				note(u)
			}
		}
		changed(what)
	}
}
