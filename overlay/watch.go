package overlay

import (
	"time"

	"github.com/tailscale/wireguard-go/device"
)

const (
	// watchEvery is how often paths in doubt are looked at.
	watchEvery = 100 * time.Millisecond
	// routeEvery is how seldom the route of a path is looked at, at most.
	routeEvery = time.Second
	// lookupEvery is how often names are looked up again.
	lookupEvery = 30 * time.Second
)

// watch keeps an eye on peers with which data is exchanged, and looks names up again.
func (d *Device) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	looked := time.Now()
	for {
		select {
		case <-d.ctx.Done():
			return
		case k := <-d.keepalives:
			d.sendKeepalive(k) // tells the peer that we heard it here
			continue
		case <-tick.C:
		}
		d.probeSilent()
		d.probePMTU()
		d.dropStaleSource()
		if time.Since(looked) >= lookupEvery {
			looked = time.Now()
			d.refreshNames()
		}
	}
}

// probeSilent sends something to every peer that is in use and silent, over all its endpoints: a receiver
// of a download has nothing else to say, and its peer must learn where it can be reached.
// Initiations that got no answer go to the next endpoint.
func (d *Device) probeSilent() {
	now := d.bind.now()
	for _, p := range d.bind.allPeers() {
		if !p.hasChoice() {
			continue
		}
		for failed := false; ; failed = true { // what cannot be sent needs no patience
			msg, to, late := p.lateInitiation(now, failed)
			if !late || d.bind.sendInitiation(msg, to) {
				break
			}
		}
		if p.silent(now) && p.inUse(now) {
			d.sendKeepalive(p.key)
		}
	}
}

// dropStaleSource looks at one path in use, another one each time: where the route to a peer leaves
// by another interface than that on which the peer was heard, the system chooses the source address
// anew. The kernel's WireGuard does the same.
func (d *Device) dropStaleSource() {
	now := d.bind.now()
	var next *peerEndpoint
	for _, p := range d.bind.allPeers() {
		h := p.current.Load()
		if h == nil || !h.local.IsValid() || h.ifindex == 0 || !p.inUse(now) ||
			h.addr.Addr().IsLinkLocalUnicast() {
			continue
		}
		if next == nil || p.routed < next.routed {
			next = p
		}
	}
	if next == nil || now-next.routed < int64(routeEvery) {
		return
	}
	next.routed = now
	h := next.current.Load()
	route, err := d.nl.RouteFrom(h.local, h.addr.Addr().Unmap())
	if err == nil && route.Link != h.ifindex {
		next.ClearSrc()
	}
}

// greet sends an empty packet to a peer, if there is a session.
func (d *Device) sendKeepalive(key Key) {
	if p, ok := d.wg.LookupActivePeer(device.NoisePublicKey(key)); ok {
		p.SendKeepalive()
	}
}

// refreshNames has the names of all endpoints looked up. It does not wait for them.
func (d *Device) refreshNames() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.peers {
		if p.endpoints.named() {
			d.done.Go(func() { d.lookUp(p) })
		}
	}
}
