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
// at a time, by the goroutine that read them. It copies what has to wait for a session.
type sealer struct {
	wg      atomic.Pointer[device.Device] // nil: all packets go the library's way
	helpers *helpers
	bind    *bind               // has what waits for sessions
	lost    func(packet []byte) // is given what no peer has the address of
	peers   []*device.Peer      // for each packet of a batch; nil when nothing is left to do

	// the packets to one peer
	slab     []byte
	packets  []tun.ReadPacket
	messages [][]byte
	counter  uint64 // of the first
	mtu      int
	sealers  [parts]transport.Sealer
	done     sync.WaitGroup
}

// send seals and sends the packets, and returns how many are left: all while the device is not up,
// else none.
func (s *sealer) send(slab []byte, packets []tun.ReadPacket) int {
	wg := s.wg.Load()
	if wg == nil || !wg.IsUp() {
		return len(packets)
	}
	now := time.Now()
	s.slab, s.mtu = slab, wg.MTU()
	s.findPeers(wg, packets)
	for i, p := range s.peers {
		if p != nil {
			s.sendTo(p, packets[i:], i, now)
		}
	}
	s.slab = nil
	return 0
}

// sendTo seals and sends those of the packets that are to a peer, and clears their peers. The first
// of them is number i of the batch.
func (s *sealer) sendTo(p *device.Peer, packets []tun.ReadPacket, i int, now time.Time) {
	s.packets = s.packets[:0]
	bytes := 0
	for k, q := range s.peers[i:] {
		if q == p {
			s.packets = append(s.packets, packets[k])
			bytes += packets[k].Size
			s.peers[i+k] = nil
		}
	}
	if s.bind.waits.peers.Load() > 0 && s.behind(p, now) {
		return
	}
	pair, counter := p.Reserve(len(s.packets), now)
	if pair == nil {
		s.hold(p, now)
		return
	}
	for k := range s.sealers {
		s.sealers[k].Use(pair.Send())
	}
	s.counter = counter
	s.messages = slices.Grow(s.messages[:0], len(s.packets))[:len(s.packets)]
	s.helpers.run(s, len(s.packets), bytes, &s.done)
	if p.SendSealed(s.messages) {
		s.bind.handshakes.add(p)
	}
	clear(s.messages)
}

// behind has the packets wait behind others to the same peer, if there are some.
func (s *sealer) behind(p *device.Peer, now time.Time) bool {
	e := s.bind.peerOf(Key(p.Key()))
	if e == nil || !e.waiting.any() {
		return false
	}
	s.hold(p, now)
	return true
}

// hold has the packets wait for a session of the peer.
func (s *sealer) hold(p *device.Peer, now time.Time) {
	e := s.bind.peerOf(Key(p.Key()))
	if e == nil { // it is being removed
		s.bind.waits.late.Add(uint64(len(s.packets)))
		return
	}
	e.waiting.add(s.slab, s.packets, s.bind.now())
	// a session may have begun meanwhile, when nothing waited for it
	if !e.waiting.send(p, s.mtu, now) {
		s.bind.handshakes.add(p)
	}
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
