package agent

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
)

// links is what is known of the host's interfaces. It is fed by nl.Watch and asked by whoever applies it.
type links struct {
	mu     sync.Mutex
	byID   map[int]nl.Link        // guarded by mu
	addrs  map[int][]netip.Prefix // guarded by mu; usable addresses by interface
	wake   chan struct{}          // has an element when something changed since the last look
	synced bool                   // guarded by mu; everything was listed once
}

func newLinks() *links {
	return &links{byID: map[int]nl.Link{}, addrs: map[int][]netip.Prefix{}, wake: make(chan struct{}, 1)}
}

// report takes one event of nl.Watch.
func (l *links) report(e nl.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case nl.LinkSet:
		l.byID[e.Link.Index] = e.Link
	case nl.LinkGone:
		delete(l.byID, e.Link.Index)
		delete(l.addrs, e.Link.Index)
	case nl.AddrSet, nl.AddrGone:
		l.setAddrLocked(e.Addr, e.Kind == nl.AddrSet && !e.Addr.Tentative)
	case nl.Synced:
		l.synced = true
	}
	if l.synced {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

func (l *links) setAddrLocked(a nl.Addr, there bool) {
	have := slices.DeleteFunc(slices.Clone(l.addrs[a.Link]), func(p netip.Prefix) bool { return p == a.Prefix })
	if there {
		have = append(have, a.Prefix)
	}
	l.addrs[a.Link] = have
}

// interfaces returns every interface of the host in order of index.
func (l *links) interfaces() []firewall.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]firewall.Interface, 0, len(l.byID))
	for i, link := range l.byID {
		all = append(all, firewall.Interface{Index: uint32(i), Name: link.Name, Addrs: slices.Clone(l.addrs[i])})
	}
	slices.SortFunc(all, func(a, b firewall.Interface) int { return int(a.Index) - int(b.Index) })
	return all
}
