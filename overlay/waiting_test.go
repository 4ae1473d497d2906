package overlay

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/tailscale/wireguard-go/tun"

	"github.com/weirnet/weir/internal/nstest"
)

// TestWaitingIsBounded is a model test. What waits for a session are the newest packets, in order
// and untouched. There are at most so many and so many bytes, and none longer than a handshake is
// tried. All others are counted, once, by what became of them.
func TestWaitingIsBounded(t *testing.T) {
	var all waitCounts
	w := waiting{all: &all}
	type packet struct {
		number uint32
		size   int
		since  int64
	}
	var model []packet
	var full, late, number uint64
	rnd := rand.New(rand.NewPCG(19, 2))
	slab := make([]byte, 70000)
	now := int64(0)
	for range 3000 {
		var packets []tun.ReadPacket
		most := []int{60, 1500, 65000}[rnd.IntN(3)]
		for at := spacing; ; {
			size := 20 + rnd.IntN(most)
			if at+size > len(slab) || len(packets) == 40 {
				break
			}
			number++
			binary.BigEndian.PutUint32(slab[at:], uint32(number))
			packets = append(packets, tun.ReadPacket{Offset: at, Size: size})
			model = append(model, packet{uint32(number), size, now})
			at += size + spacing
		}
		w.add(slab, packets, now)
		bytes := 0
		for _, p := range model {
			bytes += p.size
		}
		for len(model) > waitPackets || bytes > waitBytes {
			bytes -= model[0].size
			model = model[1:]
			full++
		}
		now += int64(rnd.IntN(int(8 * time.Second)))
		w.expire(now)
		for len(model) > 0 && now-model[0].since >= int64(waitTime) {
			model = model[1:]
			late++
		}
		if len(w.packets) != len(model) || w.any() != (len(model) > 0) {
			t.Fatalf("%d packets wait, want %d", len(w.packets), len(model))
		}
		for i, p := range model {
			q := w.packets[i]
			if binary.BigEndian.Uint32(q.memory[waitFront:]) != p.number || q.size != p.size {
				t.Fatalf("packet %d of those that wait is not number %d", i, p.number)
			}
		}
		if w.full.Load() != full || w.late.Load() != late || all.full.Load() != full ||
			all.late.Load() != late {
			t.Fatalf("counted %d and %d, want %d and %d", w.full.Load(), w.late.Load(), full, late)
		}
	}
	if full == 0 || late == 0 {
		t.Errorf("the input reaches no limit: %d full, %d late", full, late)
	}
	late += uint64(len(model))
	w.end()
	w.add(slab, []tun.ReadPacket{{Offset: spacing, Size: 100}}, now)
	if all.late.Load() != late+1 || all.peers.Load() != 0 || w.any() || w.bytes != 0 ||
		w.memory != 0 || all.memory.Load() != 0 {
		t.Errorf("after the end %d peers wait, %d of %d are counted", all.peers.Load(),
			all.late.Load(), late+1)
	}
}

// TestWaitingIsBoundedInAll: packets that wait for many peers take a bounded memory together, each
// peer has its newest ones, those that came first lose none, and what is dropped is counted.
func TestWaitingIsBoundedInAll(t *testing.T) {
	for _, size := range []int{40, 1400} { // small ones cost more than their bytes
		var all waitCounts
		slab := make([]byte, spacing+size)
		peers := make([]waiting, 1000)
		added := uint64(0)
		kept := func(w *waiting) (n int) { return len(w.packets) }
		for i := range peers {
			w := &peers[i]
			w.all = &all
			for n := range uint32(waitPackets) {
				binary.BigEndian.PutUint32(slab[spacing:], n)
				w.add(slab, []tun.ReadPacket{{Offset: spacing, Size: size}}, 0)
				added++
			}
			if got := kept(w); got == 0 || got > waitPackets ||
				binary.BigEndian.Uint32(w.packets[got-1].memory[waitFront:]) != waitPackets-1 {
				t.Fatalf("%d bytes: peer %d has %d packets, and not the newest", size, i, got)
			}
		}
		if n := kept(&peers[0]); n != waitPackets {
			t.Errorf("%d bytes: the first peer has %d packets, want %d", size, n, waitPackets)
		}
		memory, waits := 0, uint64(0)
		for i := range peers {
			for _, q := range peers[i].packets {
				memory += q.cost()
				waits++
			}
		}
		most := waitAll + len(peers)*(waitLeast+spacing+size+100)
		if memory > most || int64(memory) != all.memory.Load() {
			t.Errorf("%d bytes: %d bytes wait, %d are counted, at most %d may", size, memory,
				all.memory.Load(), most)
		}
		if all.full.Load() != added-waits {
			t.Errorf("%d bytes: %d are counted as dropped, want %d", size, all.full.Load(),
				added-waits)
		}
		for i := range peers {
			peers[i].end()
		}
		if all.memory.Load() != 0 {
			t.Errorf("%d bytes: %d are counted behind the end", size, all.memory.Load())
		}
	}
}

// TestWaitingFlood: packets that come to a full queue are copied over those that they drop, also
// where the queues of all peers are full together.
func TestWaitingFlood(t *testing.T) {
	for _, others := range []int64{0, waitAll} {
		var all waitCounts
		all.memory.Store(others)
		w := waiting{all: &all}
		const size = 1400
		slab := make([]byte, spacing+size)
		packets := []tun.ReadPacket{{Offset: spacing, Size: size}}
		for range waitPackets {
			w.add(slab, packets, 0)
		}
		had := w.full.Load()
		if n := testing.AllocsPerRun(1000, func() { w.add(slab, packets, 0) }); n != 0 {
			t.Errorf("%d bytes wait for others: %v allocations for a packet", others, n)
		}
		if n := w.full.Load() - had; n != 1001 {
			t.Errorf("%d bytes wait for others: 1001 packets took the place of %d", others, n)
		}
	}
}

// sendNumbers sends numbered datagrams to a peer that cannot be reached, and waits until all of
// them were read: faster than that, the kernel drops some.
func sendNumbers(t *testing.T, from, to *side, count uint32) {
	t.Helper()
	c, err := from.DialContext(t.Context(), "udp", to.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := &from.dev.bind.peerOf(to.key.Public()).waiting
	for i := range count {
		if _, err := c.Write(binary.BigEndian.AppendUint32(nil, i)); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(testTimeout); i%50 == 49 || i == count-1; {
			w.mu.Lock()
			n := uint64(len(w.packets)) + w.full.Load()
			w.mu.Unlock()
			if n == uint64(i)+1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d packets were read", n, i+1)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// TestPacketsWaitForASession: what is sent to a peer that cannot be reached yet waits. It arrives
// in order when the peer can be reached, whichever end begins the session. Of too many, each that
// does not arrive is counted.
func TestPacketsWaitForASession(t *testing.T) {
	for name, begin := range map[string]func(a, b *side){
		"initiator": func(a, b *side) { a.peer(t, b, nil, "10.98.0.2:51820") },
		"responder": func(a, b *side) {
			b.peer(t, a, func(p *Peer) { p.Keepalive = time.Second }, "10.98.0.1:51820")
		},
	} {
		t.Run(name, func(t *testing.T) { checkWait(t, begin) })
	}
}

func checkWait(t *testing.T, begin func(a, b *side)) {
	a, b := pair(t, nil, func(p *Peer) { p.Endpoints = nil })
	ln, err := b.ListenPacket("udp", b.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := ln.(*net.UDPConn).SetReadBuffer(16 << 20); err != nil {
		t.Fatal(err)
	}
	const count = waitPackets + 500
	sendNumbers(t, a, b, count)
	if s := a.dev.Stats(); s.WaitFull != count-waitPackets || s.WaitLate != 0 {
		t.Fatalf("of %d packets %+v", count, s)
	}
	begin(a, b)
	buf := make([]byte, 100)
	ln.SetReadDeadline(time.Now().Add(testTimeout))
	for i := uint32(count - waitPackets); i < count; i++ {
		n, _, err := ln.ReadFrom(buf)
		if err != nil || n != 4 || binary.BigEndian.Uint32(buf) != i {
			t.Fatalf("packet %d came as %x, %v", i, buf[:n], err)
		}
	}
	list, err := a.dev.Peers()
	if err != nil || list[0].WaitFull != count-waitPackets || list[0].WaitLate != 0 {
		t.Errorf("the peer says %+v, %v", list, err)
	}
	// what was sent arrives before the sender has noted that it waits no more
	nstest.Eventually(t, "no packets wait", func() bool {
		return a.dev.bind.waits.peers.Load() == 0
	})
}

// TestRemovedPeerCountsWhatWaits: packets to a peer that is removed while they wait are counted.
func TestRemovedPeerCountsWhatWaits(t *testing.T) {
	a, b := pair(t, nil, func(p *Peer) { p.Endpoints = nil })
	const count = 100
	sendNumbers(t, a, b, count)
	if err := a.dev.RemovePeer(b.key.Public()); err != nil {
		t.Fatal(err)
	}
	if s := a.dev.Stats(); s.WaitLate != count || s.WaitFull != 0 {
		t.Errorf("of %d packets %+v", count, s)
	}
}

// TestRemovalDoesNotWaitForSending: what sends the packets that waited needs the sockets' lock, so
// a peer that is removed meanwhile does not hold it.
func TestRemovalDoesNotWaitForSending(t *testing.T) {
	a, b := pair(t, nil, nil)
	key := b.key.Public()
	p := a.dev.bind.peerOf(key)
	p.waiting.mu.Lock() // as while it sends
	removed, gone := make(chan error, 1), make(chan struct{})
	go func() { removed <- a.dev.RemovePeer(key) }()
	go func() {
		for a.dev.bind.peerOf(key) != nil { // takes that lock
			time.Sleep(time.Millisecond)
		}
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(testTimeout):
		t.Error("the sockets are locked")
	}
	p.waiting.mu.Unlock()
	if err := <-removed; err != nil {
		t.Error(err)
	}
}
