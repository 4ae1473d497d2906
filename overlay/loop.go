package overlay

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// loopGuard recognises the Device's own encrypted packets among those that the kernel routes into
// the tunnel: those to a peer that is said to be at an address of its own or another peer's pods,
// or that moved there with a forged source. They would be encrypted again, over and over, a little
// larger each time. The kernel's WireGuard refuses them where it routes them.
type loopGuard struct {
	port atomic.Uint32 // of the Device's sockets; 0: not open
	seen atomic.Uint64
	read func() map[netip.Addr]bool // the addresses of this host; nil after an error

	// of the goroutine that reads the interface
	local map[netip.Addr]bool
	asked time.Time // when local was read
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
	from := source(p)
	if !g.local[from] && !g.isLocalNow(from) {
		return false
	}
	g.seen.Add(1)
	return true
}

// isLocalNow asks for the host's addresses, unless it did lately.
func (g *loopGuard) isLocalNow(a netip.Addr) bool {
	now := time.Now()
	if g.read == nil || now.Sub(g.asked) < localEvery {
		return false
	}
	g.asked = now
	if local := g.read(); local != nil {
		g.local = local
	}
	return g.local[a]
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

// localEvery is the least time between two questions for the host's addresses, which are asked when
// a packet from another one has the tunnel's port.
const localEvery = time.Second

// readLocal reads the host's addresses.
func (d *Device) readLocal() map[netip.Addr]bool {
	all, err := d.nl.Addrs(0)
	if err != nil {
		return nil
	}
	local := make(map[netip.Addr]bool, len(all))
	for _, a := range all {
		local[a.Prefix.Addr().Unmap()] = true
	}
	return local
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
