package overlay

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// loopGuard recognises the Device's own encrypted packets among those that the kernel routes into
// the tunnel. Such packets go to a peer that is said to be at an address of its own or another
// peer's pods, or that moved there with a forged source. They would be encrypted again, over and
// over, a little larger each time. The kernel's WireGuard refuses them where it routes them.
type loopGuard struct {
	port  atomic.Uint32 // of the Device's sockets; 0: not open
	seen  atomic.Uint64
	local localAddrs
}

// isOwn reports whether a packet is an encrypted packet of the Device: the port belongs to its
// sockets on every address of this host. A pod may use the same port.
func (g *loopGuard) isOwn(p []byte) bool {
	at := 0 // of the header of UDP
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		if p[9] != unix.IPPROTO_UDP || binary.BigEndian.Uint16(p[6:])&0x1fff != 0 {
			return false
		}
		at = int(p[0]&15) * 4
	case len(p) >= 40 && p[0]>>4 == 6:
		at = 40
		next := p[6]
		if next == unix.IPPROTO_FRAGMENT && len(p) >= 48 {
			if binary.BigEndian.Uint16(p[42:])&^7 != 0 {
				return false
			}
			at, next = 48, p[40]
		}
		if next != unix.IPPROTO_UDP {
			return false
		}
	}
	if at == 0 || len(p) < at+8 || uint32(binary.BigEndian.Uint16(p[at:])) != g.port.Load() {
		return false
	}
	if !g.local.has(source(p)) {
		return false
	}
	g.seen.Add(1)
	return true
}

// dropLoops takes out the frames that are encrypted packets.
func (r *tunReader) dropLoops(slab []byte) {
	kept := r.frames[:0]
	for _, f := range r.frames {
		if !r.tun.loop.isOwn(slab[f.at : f.at+f.size]) {
			kept = append(kept, f)
		}
	}
	r.frames = kept
}

// watchLoops logs loops, and returns how many were logged.
func (d *Device) watchLoops(logged uint64) uint64 {
	g := &d.tun.loop
	g.port.Store(uint32(d.Port()))
	seen := g.seen.Load()
	if seen == logged {
		return logged
	}
	if _, ok := d.bind.logLimit.may(kind{what: "loop"}, d.bind.now()); !ok {
		return logged
	}
	d.log.Warn("encrypted packets are routed into the tunnel: an endpoint of a peer is in the "+
		"range of its own or another peer's pods", "dropped", seen-logged)
	return seen
}
