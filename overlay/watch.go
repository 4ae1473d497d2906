package overlay

import (
	"time"

	"github.com/weirnet/weir/overlay/internal/device"
)

const (
	// watchEvery is how often peers are checked.
	watchEvery = 100 * time.Millisecond
	// routeEvery is the least time between two checks of a path's route.
	routeEvery = time.Second
	// lookupEvery is how often names are looked up again.
	lookupEvery = 30 * time.Second
)

// watch checks peers with which data is exchanged, and refreshes names, until Close.
func (d *Device) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	looked := time.Now()
	loops := uint64(0)
	for {
		select {
		case <-d.ctx.Done():
			return
		case k := <-d.keepalives:
			d.sendKeepalive(k) // so that the peer learns that this path works
			continue
		case k := <-d.sessions:
			if p := d.bind.peerOf(k); p != nil {
				d.sendWaiting(p)
			}
			continue
		case <-tick.C:
		}
		d.checkWaiting()
		d.probeSilent()
		d.probePMTU()
		d.dropStaleSource()
		loops = d.watchLoops(loops)
		if time.Since(looked) >= lookupEvery {
			looked = time.Now()
			d.refreshNames()
		}
	}
}

// probeSilent sends a keepalive to every peer that is in use and silent, to all its endpoints. A
// receiver of a download sends nothing else, and its peer must learn where it can be reached.
// Initiations without an answer go to the next endpoint.
func (d *Device) probeSilent() {
	now := d.bind.now()
	for _, p := range d.bind.allPeers() {
		if !p.hasChoice() {
			continue
		}
		for failed := false; ; failed = true { // what cannot be sent is not waited for
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

// dropStaleSource checks the route of one path in use, another one each time. If the route to a
// peer leaves by another interface than its packets come in, the system chooses a new source
// address. The kernel's WireGuard does the same.
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

// sendKeepalive sends an empty packet to a peer, if there is a session.
func (d *Device) sendKeepalive(key Key) {
	if p, ok := d.wg.LookupActivePeer(device.NoisePublicKey(key)); ok {
		p.SendKeepalive()
	}
}
