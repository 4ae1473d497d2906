// Package host follows the host that a node is on: its interfaces, addresses and routes, the
// settings of its kernel, and the mount of the pins. It puts the hooks on interfaces.
package host

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/overlay"
)

// Links holds the host's interfaces and addresses. nl.Watch feeds it; Hooks applies it.
type Links struct {
	mu    sync.Mutex             // its place in the lock order: agent/doc.go
	byID  map[int]nl.Link        // guarded by mu
	addrs map[int][]netip.Prefix // guarded by mu; usable addresses by interface
	// guarded by mu; which of them were made from router advertisements
	advertised map[int][]netip.Prefix
	wake       chan struct{}   // has an element when something changed since it was last read
	pods       map[int]podLink // guarded by mu; host ends of pods
	// guarded by mu; what follows from these, in order of index; never changed in place
	all    []firewall.Interface
	synced bool          // guarded by mu; everything was listed once
	lost   chan struct{} // has an element when the interface of a pod is gone
	gone   map[int]bool  // guarded by mu; interfaces of pods that are gone, until ExpectRemoval
	// guarded by mu; interfaces reported since listAgain, nil after the listing
	listed map[int]bool
	// guarded by mu; interfaces that were gone, or may have been, since the last look, or whose
	// frames are others
	remade map[int]bool
	uppers uppers // guarded by mu
	// guarded by mu; what local routes by an interface lead to
	local map[int][]netip.Prefix

	sources func(name string) (local bool, reverse firewall.ReversePath) // sourceSettings
	router6 func(name string) bool                                       // isRouter6
	routes  func() (map[int][]netip.Prefix, error)                       // localRoutes
	// called, with mu held, when routes may end of which the kernel reports nothing
	routesEnd func()
}

// NewLinks returns an empty list of interfaces.
func NewLinks() *Links {
	return &Links{byID: map[int]nl.Link{}, addrs: map[int][]netip.Prefix{},
		advertised: map[int][]netip.Prefix{}, pods: map[int]podLink{},
		wake: make(chan struct{}, 1),
		lost: make(chan struct{},
			1), gone: map[int]bool{}, remade: map[int]bool{}, sources: sourceSettings,
		router6: isRouter6, routes: localRoutes, routesEnd: func() {}}
}

// Wake receives an element when something has changed since it was last read.
func (l *Links) Wake() <-chan struct{} { return l.wake }

// Lost receives an element when the interface of a pod is gone.
func (l *Links) Lost() <-chan struct{} { return l.lost }

// listAgain announces a full listing: an interface that is not reported until Synced is gone.
func (l *Links) listAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed = map[int]bool{}
}

// takeRemade returns which interfaces were gone since it was last called, or may have been: another
// one may have the index by now. Those with other frames are among them.
func (l *Links) takeRemade() map[int]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.remade
	l.remade = map[int]bool{}
	return all
}

// keepRemade puts back what takeRemade returned and was not processed.
func (l *Links) keepRemade(all map[int]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.remade, all)
}

// ByAlias returns the index of the interface with an alias for which is returns true, and with an
// expected index or, if that is another one's, with a name. It returns 0 if there is none.
func (l *Links) ByAlias(expected uint32, name string, is func(alias string) bool) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one, ok := l.byID[int(expected)]; ok && is(one.Alias) {
		return expected
	}
	for index, one := range l.byID {
		if one.Name == name && is(one.Alias) {
			return uint32(index)
		}
	}
	return 0
}

// Report takes one event of nl.Watch.
func (l *Links) Report(e nl.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case nl.LinkSet:
		old, known := l.byID[e.Link.Index]
		l.byID[e.Link.Index] = e.Link
		if l.listed != nil {
			l.listed[e.Link.Index] = true
		}
		if known && old.Up && !e.Link.Up {
			l.endRoutesLocked(e.Link.Index)
		}
		// Also accept_local or rp_filter: Reread will not find them changed any more.
		changed := l.noteLocked(e.Link.Index)
		reframed := known && (old.Encap != e.Link.Encap || old.NoRemote != e.Link.NoRemote)
		if reframed { // a bond takes the type of its first port
			l.remade[e.Link.Index] = true
		}
		restacked := l.uppers.note(old, e.Link)
		if known && !reframed && !changed && !restacked && old.Name == e.Link.Name &&
			old.Up == e.Link.Up {
			return // the kernel reports a new pod a dozen times
		}
	case nl.LinkGone:
		l.dropLocked(e.Link.Index)
	case nl.AddrSet, nl.AddrGone:
		if e.Kind == nl.AddrGone { // and the routes that have it as their source
			l.routesEnd()
		}
		l.setAddrLocked(e.Addr, e.Kind == nl.AddrSet && !e.Addr.Tentative)
	case nl.Synced:
		l.syncLocked()
	}
	if l.synced {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// endRoutesLocked follows an interface that is gone or down. The kernel removes the IPv4 routes by
// it and reports none of them (fib_disable_ip in net/ipv4/fib_frontend.c). Local ones stay at one
// that is down, and still lead to the host (fib_sync_down_dev). The agent itself removes the routes
// by a pod's.
func (l *Links) endRoutesLocked(index int) {
	if _, isPod := l.pods[index]; !isPod {
		l.routesEnd()
	}
}

// dropLocked forgets an interface.
func (l *Links) dropLocked(index int) {
	l.endRoutesLocked(index)
	delete(l.local, index)
	l.remade[index] = true
	l.noteLostLocked(index)
	l.uppers.note(l.byID[index], nl.Link{})
	delete(l.byID, index)
	delete(l.addrs, index)
	delete(l.advertised, index)
	delete(l.pods, index)
	l.noteLocked(index)
}

// syncLocked ends a listing. After lost notifications each interface may be another one.
func (l *Links) syncLocked() {
	for index := range l.byID {
		if l.listed != nil && !l.listed[index] {
			l.dropLocked(index)
		} else if l.synced {
			l.remade[index] = true
		}
	}
	l.synced, l.listed = true, nil
}

func (l *Links) setAddrLocked(a nl.Addr, there bool) {
	set := func(of map[int][]netip.Prefix, there bool) {
		have := slices.DeleteFunc(slices.Clone(of[a.Link]), func(p netip.Prefix) bool {
			return p == a.Prefix
		})
		if there {
			have = append(have, a.Prefix)
		}
		of[a.Link] = have
	}
	set(l.addrs, there)
	set(l.advertised, there && a.Advertised)
	l.noteLocked(a.Link)
}

// noteLocked brings one interface in `all` up to date, and reports whether that changed it. A pod
// that leaves before the kernel reported it is removed at once.
func (l *Links) noteLocked(index int) (changed bool) {
	kernel, there := l.byID[index]
	now := firewall.Interface{Index: uint32(index), Name: kernel.Name, Addrs: l.addrs[index]}
	if p, isPod := l.pods[index]; isPod && (there || !p.leaving) {
		now.Name, there = p.name, true
	} else if there {
		now.AcceptLocal, now.ReversePath = l.sources(kernel.Name)
		now.Router6, now.Local = l.router6(kernel.Name), l.local[index]
		now.Tunnel = overlay.IsKernelLink(kernel)
	}
	at, known := slices.BinarySearchFunc(l.all, now, firewall.CompareInterfaces)
	switch {
	case known && there:
		if l.all[at].Equal(now) {
			return false
		}
		l.all = slices.Clone(l.all)
		l.all[at] = now
	case known:
		l.all = slices.Concat(l.all[:at], l.all[at+1:])
	case there:
		l.all = slices.Concat(l.all[:at], []firewall.Interface{now}, l.all[at:])
	}
	return known || there
}

// Interfaces returns every interface of the host in order of index, those of pods also before the
// kernel reports them. The list is never changed in place.
func (l *Links) Interfaces() []firewall.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// noteLostLocked records that the interface of a pod vanished without a detach.
func (l *Links) noteLostLocked(index int) {
	if p, isPod := l.pods[index]; !isPod || p.leaving {
		return
	}
	l.gone[index] = true
	select {
	case l.lost <- struct{}{}:
	default:
	}
}

// IsLost reports whether the interface of a pod is gone.
func (l *Links) IsLost(index uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone[int(index)]
}

// podLink is the host end of a pod.
type podLink struct {
	name string // what rules call it
	// guarded until the kernel reports that it is gone, which it never does for one that it never
	// reported
	leaving bool
}

// AddPod registers the host end of a pod, maybe before the kernel reports the interface.
func (l *Links) AddPod(index uint32, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.gone, int(index))
	l.pods[int(index)] = podLink{name: name}
	l.noteLocked(int(index))
}

// ExpectRemoval announces that the host end of a pod is about to be removed.
func (l *Links) ExpectRemoval(index uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.gone, int(index))
	if p, ok := l.pods[int(index)]; ok {
		p.leaving = true
		l.pods[int(index)] = p
		l.noteLocked(int(index))
	}
}

// Name returns the name of an interface, "" if it is not known.
func (l *Links) Name(index uint32) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.pods[int(index)]; ok {
		return p.name
	}
	return l.byID[int(index)].Name
}

// IsOnly reports whether an interface has an address and no other one of the family that others can
// send to, except for addresses that are translated.
func (l *Links) IsOnly(a netip.Addr, away []netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range l.addrs {
		has, others := false, 0
		for _, p := range all {
			switch one := p.Addr(); {
			case one == a:
				has = true
			case one.Is4() == a.Is4() && one.IsGlobalUnicast() && !slices.Contains(away, one):
				others++
			}
		}
		if has && others == 0 {
			return true
		}
	}
	return false
}

// HasAddress reports whether an interface has an address. IsMe also knows others at which the host
// takes packets.
func (l *Links) HasAddress(a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range l.addrs {
		if holds(all, a) {
			return true
		}
	}
	return false
}

// Has reports whether an interface has an address.
func (l *Links) Has(name string, a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for index, link := range l.byID {
		if link.Name == name && holds(l.addrs[index], a) {
			return true
		}
	}
	return false
}

func holds(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Addr() == a })
}
