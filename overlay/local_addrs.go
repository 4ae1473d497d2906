package overlay

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/weirnet/weir/internal/nl"
)

// localAddrs are the addresses of this host. The kernel reports them as they come and go: the
// goroutine that reads the interface never asks for them. A pod could make it ask, by the port of
// its packets, and the packets to all peers would wait for the kernel.
type localAddrs struct {
	mu    sync.RWMutex
	count map[netip.Addr]int // guarded by mu; on how many interfaces
}

// has reports whether an address is one of this host. It waits for nothing but its lock.
func (l *localAddrs) has(a netip.Addr) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.count[a] > 0
}

// reporter returns what takes the events of one nl.Watch. Those of the Watch before hold until
// everything is listed.
func (l *localAddrs) reporter() func(nl.Event) {
	type place struct {
		link int
		at   netip.Prefix
	}
	there, synced := map[place]bool{}, false
	return func(e nl.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		p, a := place{e.Addr.Link, e.Addr.Prefix}, e.Addr.Prefix.Addr().Unmap()
		change := 0
		switch {
		case e.Kind == nl.AddrSet && !there[p]:
			there[p], change = true, 1
		case e.Kind == nl.AddrGone && there[p]:
			delete(there, p)
			change = -1
		case e.Kind == nl.Synced && !synced:
			synced, l.count = true, map[netip.Addr]int{}
			for p := range there {
				l.count[p.at.Addr().Unmap()]++
			}
		}
		if synced && change != 0 {
			if l.count[a] += change; l.count[a] == 0 {
				delete(l.count, a)
			}
		}
	}
}

// follow takes what the kernel reports of a namespace until ctx ends.
func (l *localAddrs) follow(ctx context.Context, ns *nl.NS, failed func(error)) {
	for {
		err := nl.Watch(ctx, ns, l.reporter())
		if ctx.Err() != nil {
			return
		}
		failed(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(followAgain):
		}
	}
}

// followAgain is how long after a failure the addresses are followed again.
const followAgain = time.Second

// followAddrs follows the host's addresses until Close.
func (d *Device) followAddrs() {
	d.tun.loop.local.follow(d.ctx, d.ns, func(err error) {
		if more, ok := d.bind.logLimit.may(kind{what: "addresses"}, d.bind.now()); ok {
			d.log.Warn("the host's addresses are not followed; will try again", "err", err,
				"not_logged_before", more)
		}
	})
}
