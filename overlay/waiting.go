package overlay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailscale/wireguard-go/tun"

	"github.com/weirnet/weir/overlay/internal/device"
	"github.com/weirnet/weir/overlay/transport"
)

// Limits for the packets that wait for a session of a peer. The first packets of a connection are
// few, and repeated when they are lost.
const (
	waitPackets = 1024
	waitBytes   = 2 << 20
	// waitTime is how long WireGuard tries a handshake (REKEY_ATTEMPT_TIME).
	waitTime = 90 * time.Second
	// waitAll is how many bytes of memory wait for all peers together. Where a cluster of thousands
	// cannot be reached, one pod that sends to all of them would otherwise take gigabytes. It is 32
	// full queues. Beyond it a peer has its newest packets only, waitLeast bytes of them and one at
	// least: enough for the first packets of some connections.
	waitAll, waitLeast = 64 << 20, 16 << 10
)

// waitFront is the space in front of a packet for what sealing puts there.
const waitFront = transport.HeaderSize + device.MessageEncapsulatingTransportSize

// waiting are the packets to a peer that wait for a session, the oldest first.
type waiting struct {
	all *waitCounts

	mu      sync.Mutex      // held while they are sent, so taken before that of the bind
	ended   bool            // guarded by mu; the peer was removed
	packets []waitingPacket // guarded by mu
	bytes   int             // guarded by mu; of the packets
	memory  int             // guarded by mu; of the packets

	// packets dropped: for others, as too many waited; because no session came in time
	full, late atomic.Uint64
}

// waitCounts are about the packets of all peers.
type waitCounts struct {
	peers      atomic.Int32 // how many have packets that wait
	memory     atomic.Int64 // bytes
	full, late atomic.Uint64
}

// waitingPacket is a packet with the space that sealing needs.
type waitingPacket struct {
	memory []byte // its capacity is counted
	size   int
	since  int64 // of the bind's clock
}

// waitCost is how much memory a packet takes, about, beside that of its bytes: its place in the
// list, and what the allocator rounds up.
const waitCost = 64

func (q *waitingPacket) cost() int { return cap(q.memory) + waitCost }

// add copies packets behind the others. Where they are too many, the oldest are dropped. A packet
// is copied over the one whose place it takes: a flood to a peer that cannot be reached makes no
// garbage.
func (w *waiting) add(slab []byte, packets []tun.ReadPacket, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		w.tooLate(len(packets))
		return
	}
	had := len(w.packets) > 0
	full := uint64(0)
	for _, p := range packets {
		size := waitFront + p.Size + transport.Tailroom
		var memory []byte
		for w.fullLocked(p.Size, size+waitCost) {
			memory = w.packets[0].memory
			w.removeLocked(1)
			full++
		}
		if cap(memory) < size || cap(memory) > 2*size {
			memory = make([]byte, size)
		}
		q := waitingPacket{memory[:size], p.Size, now}
		copy(q.memory[waitFront:], slab[p.Offset:p.Offset+p.Size])
		w.packets = append(w.packets, q)
		w.bytes += q.size
		w.memory += q.cost()
		w.all.memory.Add(int64(q.cost()))
	}
	w.full.Add(full)
	w.all.full.Add(full)
	w.noteLocked(had)
}

// fullLocked reports whether the oldest packet has to make space for one of some bytes that takes
// some memory.
func (w *waiting) fullLocked(bytes, memory int) bool {
	return len(w.packets) > 0 &&
		(len(w.packets) == waitPackets || w.bytes+bytes > waitBytes ||
			int(w.all.memory.Load())+memory > waitAll && w.memory+memory > waitLeast)
}

// any reports whether packets wait, of which those that come now must not get ahead.
func (w *waiting) any() bool {
	if w.all.peers.Load() == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.packets) > 0
}

// send seals and sends what waits, if the peer has a session.
func (w *waiting) send(p *device.Peer, mtu int, now time.Time) (sent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.packets) > 0 {
		n := min(len(w.packets), batchSize)
		pair, counter := p.Reserve(n, now)
		if pair == nil {
			return false
		}
		var s transport.Sealer
		s.Use(pair.Send())
		messages := make([][]byte, n)
		for i, q := range w.packets[:n] {
			m := s.Seal(q.memory, waitFront, q.size, mtu, counter+uint64(i))
			messages[i] = q.memory[:waitFront-transport.HeaderSize+len(m)]
		}
		p.SendSealed(messages)
		w.removeLocked(n)
		w.noteLocked(true)
	}
	return true
}

// expire drops the packets that have waited too long.
func (w *waiting) expire(now int64) {
	if w.all.peers.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for n < len(w.packets) && now-w.packets[n].since >= int64(waitTime) {
		n++
	}
	had := len(w.packets) > 0
	w.tooLate(n)
	w.removeLocked(n)
	w.noteLocked(had)
}

// end drops all packets, and those that come later: the peer is removed.
func (w *waiting) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	had := len(w.packets) > 0
	w.ended = true
	w.tooLate(len(w.packets))
	w.removeLocked(len(w.packets))
	w.noteLocked(had)
}

func (w *waiting) tooLate(n int) {
	w.late.Add(uint64(n))
	w.all.late.Add(uint64(n))
}

// removeLocked removes the first n packets.
func (w *waiting) removeLocked(n int) {
	before := w.memory
	for i := range w.packets[:n] {
		w.bytes -= w.packets[i].size
		w.memory -= w.packets[i].cost()
		w.packets[i].memory = nil
	}
	w.all.memory.Add(int64(w.memory - before))
	if w.packets = w.packets[n:]; len(w.packets) == 0 {
		w.packets = nil
	}
}

// noteLocked keeps the number of peers with packets that wait; had is whether this one had some.
func (w *waiting) noteLocked(had bool) {
	switch has := len(w.packets) > 0; {
	case has && !had:
		w.all.peers.Add(1)
	case had && !has:
		w.all.peers.Add(-1)
	}
}

// sendWaiting sends what waits for a peer that has a session now.
func (d *Device) sendWaiting(p *peerEndpoint) {
	if !p.waiting.any() {
		return
	}
	if q, ok := d.wg.LookupActivePeer(device.NoisePublicKey(p.key)); ok {
		p.waiting.send(q, d.wg.MTU(), time.Now())
	}
}

// checkWaiting drops what has waited too long. What else waits is tried: a session may have begun
// without a notice.
func (d *Device) checkWaiting() {
	if d.bind.waits.peers.Load() == 0 {
		return
	}
	now := d.bind.now()
	for _, p := range d.bind.allPeers() {
		p.waiting.expire(now)
		d.sendWaiting(p)
	}
}
