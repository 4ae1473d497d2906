package overlay

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tailscale/wireguard-go/tun"

	"github.com/weirnet/weir/overlay/internal/device"
	"github.com/weirnet/weir/overlay/transport"
)

// sealer seals and sends packets of the kernel to the peers that have a session: in place, a batch
// at a time, by the goroutine that read them. What has to wait for a session goes the library's
// way.
type sealer struct {
	wg       atomic.Pointer[device.Device] // nil: all packets go the library's way
	sealer   transport.Sealer
	peers    []*device.Peer // for each packet of a batch; nil when nothing is left to do
	waiting  []*device.Peer // those without a session
	messages [][]byte
}

// send seals and sends the packets that it can, and returns how many are left, at the front of
// packets.
func (s *sealer) send(slab []byte, packets []tun.ReadPacket) int {
	wg := s.wg.Load()
	if wg == nil || !wg.IsUp() {
		return len(packets)
	}
	now, mtu := time.Now(), wg.MTU()
	s.findPeers(wg, slab, packets)
	s.waiting = s.waiting[:0]
	for i, p := range s.peers {
		if p != nil && !slices.Contains(s.waiting, p) && !s.sendTo(p, slab, packets, i, now, mtu) {
			s.waiting = append(s.waiting, p)
		}
	}
	left := 0
	for i, p := range s.peers {
		if p != nil {
			packets[left] = packets[i]
			left++
		}
	}
	return left
}

// sendTo seals and sends the packets to one peer, of which i is the first, and clears their peers.
// It returns false and does nothing when they have to go the library's way.
func (s *sealer) sendTo(p *device.Peer, slab []byte, packets []tun.ReadPacket, i int,
	now time.Time, mtu int) bool {
	n := 0
	for _, q := range s.peers[i:] {
		if q == p {
			n++
		}
	}
	pair, counter := p.Reserve(n, now)
	if pair == nil {
		return false
	}
	s.sealer.Use(pair.Send())
	for k := i; k < len(s.peers); k++ {
		if s.peers[k] != p {
			continue
		}
		s.peers[k] = nil
		at := packets[k].Offset
		m := s.sealer.Seal(slab, at, packets[k].Size, mtu, counter)
		counter++
		begin := at - transport.HeaderSize
		s.messages = append(s.messages,
			slab[begin-device.MessageEncapsulatingTransportSize:begin+len(m)])
	}
	p.SendSealed(s.messages)
	clear(s.messages)
	s.messages = s.messages[:0]
	return true
}

// findPeers fills peers. A packet to nobody is dropped.
func (s *sealer) findPeers(wg *device.Device, slab []byte, packets []tun.ReadPacket) {
	s.peers = s.peers[:0]
	var last netip.Addr
	var peer *device.Peer
	for _, q := range packets {
		if dst := destination(slab[q.Offset : q.Offset+q.Size]); dst != last {
			last, peer = dst, nil
			if dst.IsValid() {
				peer = wg.PeerTo(dst)
			}
		}
		s.peers = append(s.peers, peer)
	}
}

// source and destination are the addresses of a packet, not valid if it is none.
func source(p []byte) netip.Addr      { return address(p, 12, 8) }
func destination(p []byte) netip.Addr { return address(p, 16, 24) }

func address(p []byte, at4, at6 int) netip.Addr {
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(p[at4:]))
	case len(p) >= 40 && p[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(p[at6:]))
	}
	return netip.Addr{}
}
