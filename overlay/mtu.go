package overlay

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/tailscale/wireguard-go/tun"

	"github.com/weirnet/weir/firewall"
)

// overhead is what a packet grows by on its way to a: the IP header, UDP's 8 and WireGuard's 32
// bytes.
func overhead(a netip.Addr) int {
	if a.Is4() {
		return 20 + 8 + 32
	}
	return 40 + 8 + 32
}

// fitMTU lowers the interface's MTU to what fits the links by which the addresses are reached. It
// never raises it: what lies behind those links is not known. A given Config.MTU stays. All peers
// share the interface, so what is said of one path does not count. An address in the range of pods
// does not count, because nothing is sent there. Nor does what a router, or someone who forges its
// messages, has reported of one address.
func (d *peerSet) fitMTU(list []netip.AddrPort) error {
	if !d.autoMTU {
		return nil
	}
	best := d.wire.currentMTU()
	for _, a := range list {
		route, err := d.nl.RouteTo(a.Addr())
		if err != nil || route.Link == d.link.Index {
			continue // not reachable now; or by this tunnel itself
		}
		table, err := d.nl.MatchRoute(a.Addr(), 0) // RouteTo has the MTU that was reported
		if err != nil {
			continue
		}
		size := table.MTU
		if size == 0 {
			link, err := d.nl.LinkByIndex(route.Link)
			if err != nil {
				continue
			}
			size = link.MTU
		}
		best = min(best, size-overhead(a.Addr()))
	}
	return d.wire.lowerMTU(max(best, MinMTU))
}

// currentMTU implements wire.
func (d *Device) currentMTU() int { return int(d.tun.mtu.Load()) }

// lowerMTU implements wire.
func (d *Device) lowerMTU(best int) error {
	if best >= int(d.tun.mtu.Load()) {
		return nil
	}
	if err := d.nl.SetLinkMTU(d.link.Index, best); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	d.tun.mtu.Store(int32(best))
	d.tun.events.send(tun.EventMTUUpdate)
	d.log.Info("mtu lowered", "interface", d.tun.name, "mtu", best)
	return nil
}

// padding: WireGuard pads packets to a multiple of it, but not beyond the interface's MTU.
const padding = 16

// rangeMTU is the MTU of a pod range behind a path that carries less than the interface's MTU.
type rangeMTU struct {
	pods netip.Prefix
	mtu  int
}

// rangesChanged implements wire: it gives the interface the MTUs of peers whose paths carry less
// than its own.
func (d *Device) rangesChanged() {
	var all []rangeMTU
	for _, p := range d.peers {
		if p.peerEndpoint == nil || p.peerEndpoint.pathMTU.Load() == 0 {
			continue
		}
		for _, r := range p.Pods {
			all = append(all, rangeMTU{r, int(p.peerEndpoint.pathMTU.Load())})
		}
	}
	if all == nil {
		d.tun.pathMTU.Store(nil)
		return
	}
	d.tun.pathMTU.Store(&all)
}

// mtuOf returns the MTU of the path to the remote end of a packet.
func (t *tunDevice) mtuOf(p []byte, dir firewall.Direction) int {
	mtu := int(t.mtu.Load())
	pathMTU := t.pathMTU.Load()
	if pathMTU == nil {
		return mtu
	}
	var far netip.Addr
	switch {
	case len(p) >= 20 && p[0]>>4 == 4 && dir == firewall.Out:
		far = netip.AddrFrom4([4]byte(p[16:]))
	case len(p) >= 20 && p[0]>>4 == 4:
		far = netip.AddrFrom4([4]byte(p[12:]))
	case len(p) >= 40 && p[0]>>4 == 6 && dir == firewall.Out:
		far = netip.AddrFrom16([16]byte(p[24:]))
	case len(p) >= 40 && p[0]>>4 == 6:
		far = netip.AddrFrom16([16]byte(p[8:]))
	}
	for _, n := range *pathMTU {
		if n.pods.Contains(far) {
			mtu = min(mtu, n.mtu)
		}
	}
	return mtu
}

const tcpSyn = 0x02

// synAt returns where the TCP header of a packet with SYN begins, 0 for other packets.
func synAt(p []byte) (ip int) {
	switch {
	case len(p) >= 40 && p[0]>>4 == 4 && p[9] == 6 && p[6]&0x1f == 0 && p[7] == 0:
		ip = int(p[0]&15) * 4
	case len(p) >= 60 && p[0]>>4 == 6 && p[6] == 6:
		ip = 40
	}
	if ip < 20 || len(p) < ip+20 || p[ip+13]&tcpSyn == 0 {
		return 0
	}
	return ip
}

// clamp does what clampMSS does, with the MTU of the packet's path. Only a SYN pays for looking
// that up among all peers.
func (t *tunDevice) clamp(p []byte, dir firewall.Direction, partial bool) {
	if synAt(p) != 0 {
		clampMSS(p, t.mtuOf(p, dir), partial)
	}
}

// clampMSS lowers the maximum segment size in a TCP packet with SYN to what fits the MTU, so that
// connections through the interface need no ICMP to find it. partial means that the checksum field
// holds the sum of the pseudo header alone.
func clampMSS(p []byte, mtu int, partial bool) {
	ip := synAt(p)
	if ip == 0 {
		return
	}
	fits := mtu - 20 - 20
	if p[0]>>4 == 6 {
		fits = mtu - 40 - 20
	}
	tcp := p[ip:]
	end := min(int(tcp[12]>>4)*4, len(tcp))
	for i := 20; i+1 < end; {
		kind, size := tcp[i], int(tcp[i+1])
		switch {
		case kind == 0:
			return
		case kind == 1:
			i++
			continue
		case size < 2 || i+size > end:
			return
		case kind == 2 && size == 4:
			at := i + 2
			old := binary.BigEndian.Uint16(tcp[at:])
			if int(old) <= fits {
				return
			}
			binary.BigEndian.PutUint16(tcp[at:], uint16(fits))
			if !partial {
				fixChecksum(tcp, at, old, uint16(fits))
			}
			return
		}
		i += size
	}
}

// fixChecksum updates the checksum of a TCP header after 16 bits changed at an offset (RFC 1624).
// At an odd offset the bytes belong to two words; the sum then has them swapped.
func fixChecksum(tcp []byte, at int, old, changed uint16) {
	if at%2 == 1 {
		old, changed = old<<8|old>>8, changed<<8|changed>>8
	}
	sum := uint32(^binary.BigEndian.Uint16(tcp[16:])) + uint32(^old) + uint32(changed)
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
}
