package overlay

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/weirnet/weir/overlay/internal/device"
	"github.com/weirnet/weir/overlay/transport"
)

// opener opens received transport messages: in place, by the goroutine that read them, and gives
// what is in them to the kernel, a batch at a time. Neighbouring messages of one session and one
// source are a run; what is true of all of a run is looked up once.
type opener struct {
	bind    *bind
	wg      *device.Device
	write   func(packets [][]byte, offset int) (int, error)
	opener  transport.Opener
	now     time.Time
	packets [][]byte // each with the header of its message in front

	run run
}

// run is the state of a run.
type run struct {
	index    uint32
	from     *remoteEndpoint
	peer     *device.Peer // nil: there is no such session
	pair     *device.Keypair
	paths    *peerEndpoint
	source   netip.Addr // the last one that the peer may use
	size     int        // of the accepted messages
	accepted bool
	data     bool
}

// opener returns an opener, or nil if all messages go to the library.
func (b *bind) opener() *opener {
	if b.wg == nil {
		return nil
	}
	return &opener{bind: b, wg: b.wg, write: b.write}
}

// begin begins a batch.
func (o *opener) begin() {
	if o != nil {
		o.now = time.Now()
	}
}

// add opens a message, and reports whether it was a transport message.
func (o *opener) add(message []byte, from *remoteEndpoint) bool {
	if o == nil {
		return false
	}
	index, ok := transport.Session(message)
	if !ok {
		return false
	}
	r := &o.run
	if r.from != from || r.index != index {
		o.endRun()
		o.beginRun(index, from)
	}
	if r.peer == nil {
		return true
	}
	packet, counter, ok := o.opener.Open(r.pair.Receive(), message)
	if !ok || !r.pair.Accept(counter) {
		return true
	}
	if !r.accepted {
		r.accepted = true
		r.peer.Received(r.pair)
	}
	r.size += len(message)
	if len(packet) == 0 {
		return true // a keepalive
	}
	r.data = true
	if n := o.length(packet); n > 0 {
		o.packets = append(o.packets, message[:transport.HeaderSize+n])
	}
	if len(o.packets) == batchSize {
		o.give()
	}
	return true
}

// length is the true length of a packet, which is padded; 0 if it is none, or not from an address
// of the peer.
func (o *opener) length(p []byte) int {
	src, n := source(p), 0
	switch {
	case src.Is4():
		if n = int(binary.BigEndian.Uint16(p[2:])); n < 20 {
			return 0
		}
	case src.Is6():
		n = int(binary.BigEndian.Uint16(p[4:])) + 40
	}
	if n > len(p) || !src.IsValid() {
		return 0
	}
	if src != o.run.source {
		if !o.run.peer.AllowedPeerSourceIP(src) {
			return 0
		}
		o.run.source = src
	}
	return n
}

// beginRun begins a run. While it lasts, no other goroutine receives from the peer: what was
// received before is recorded without a lock.
func (o *opener) beginRun(index uint32, from *remoteEndpoint) {
	r := &o.run
	r.index, r.from = index, from
	peer, pair := o.wg.Session(index, o.now)
	if peer == nil || !peer.Running() {
		return
	}
	if r.paths = o.bind.peerOf(Key(peer.Key())); r.paths == nil {
		return // it is being removed
	}
	r.paths.receiving.Lock()
	r.peer, r.pair = peer, pair
}

func (o *opener) endRun() {
	r := &o.run
	if r.peer != nil {
		r.paths.receiving.Unlock()
	}
	if r.accepted {
		r.from.FromPeer(r.peer.Key())
		r.peer.ReceivedAll(r.size, r.data)
	}
	*r = run{}
}

// end ends a batch.
func (o *opener) end() {
	if o != nil {
		o.endRun()
		o.give()
	}
}

// give writes the packets to the kernel.
func (o *opener) give() {
	if len(o.packets) == 0 {
		return
	}
	if _, err := o.write(o.packets, transport.HeaderSize); err != nil {
		o.wg.WriteFailed(err)
	}
	clear(o.packets)
	o.packets = o.packets[:0]
}
