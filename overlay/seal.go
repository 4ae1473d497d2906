package overlay

import (
	"net/netip"
	"slices"
	"sync"
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
	wg      atomic.Pointer[device.Device] // nil: all packets go the library's way
	helpers *helpers
	lost    func(packet []byte) // is given what no peer has the address of
	peers   []*device.Peer      // for each packet of a batch; nil when nothing is left to do
	waiting []*device.Peer      // those without a session

	// the packets to one peer
	slab     []byte
	packets  []tun.ReadPacket
	messages [][]byte
	counter  uint64 // of the first
	mtu      int
	sealers  [parts]transport.Sealer
	done     sync.WaitGroup
}

// send seals and sends the packets that it can, and returns how many are left, at the front of
// packets.
func (s *sealer) send(slab []byte, packets []tun.ReadPacket) int {
	wg := s.wg.Load()
	if wg == nil || !wg.IsUp() {
		return len(packets)
	}
	now := time.Now()
	s.slab, s.mtu, s.waiting = slab, wg.MTU(), s.waiting[:0]
	s.findPeers(wg, packets)
	for i, p := range s.peers {
		if p != nil && !slices.Contains(s.waiting, p) && !s.sendTo(p, packets[i:], i, now) {
			s.waiting = append(s.waiting, p)
		}
	}
	s.slab = nil
	left := 0
	for i, p := range s.peers {
		if p != nil {
			packets[left] = packets[i]
			left++
		}
	}
	return left
}

// sendTo seals and sends those of the packets that are to a peer, and clears their peers. The first
// of them is number i of the batch. It returns false and does nothing when they have to go the
// library's way.
func (s *sealer) sendTo(p *device.Peer, packets []tun.ReadPacket, i int, now time.Time) bool {
	s.packets = s.packets[:0]
	bytes := 0
	for k, q := range s.peers[i:] {
		if q == p {
			s.packets = append(s.packets, packets[k])
			bytes += packets[k].Size
		}
	}
	pair, counter := p.Reserve(len(s.packets), now)
	if pair == nil {
		return false
	}
	for k, q := range s.peers[i:] {
		if q == p {
			s.peers[i+k] = nil
		}
	}
	for k := range s.sealers {
		s.sealers[k].Use(pair.Send())
	}
	s.counter = counter
	s.messages = slices.Grow(s.messages[:0], len(s.packets))[:len(s.packets)]
	s.helpers.run(s, len(s.packets), bytes, &s.done)
	p.SendSealed(s.messages)
	clear(s.messages)
	return true
}

// do implements divisible.
func (s *sealer) do(part, from, to int) {
	const front = transport.HeaderSize + device.MessageEncapsulatingTransportSize
	for i := from; i < to; i++ {
		at := s.packets[i].Offset
		m := s.sealers[part].Seal(s.slab, at, s.packets[i].Size, s.mtu, s.counter+uint64(i))
		s.messages[i] = s.slab[at-front : at-transport.HeaderSize+len(m)]
	}
}

// findPeers fills peers. A packet that is to none of them is dropped.
func (s *sealer) findPeers(wg *device.Device, packets []tun.ReadPacket) {
	s.peers = s.peers[:0]
	var last netip.Addr
	var peer *device.Peer
	for _, q := range packets {
		packet := s.slab[q.Offset : q.Offset+q.Size]
		if dst := destination(packet); dst != last {
			last, peer = dst, nil
			if dst.IsValid() {
				peer = wg.PeerTo(dst)
			}
		}
		if peer == nil {
			s.lost(packet)
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
