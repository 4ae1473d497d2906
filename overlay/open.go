package overlay

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/weirnet/weir/overlay/internal/device"
	"github.com/weirnet/weir/overlay/transport"
)

// opener opens received transport messages: in place, a batch at a time, by the goroutine that read
// them, and gives what is in them to the kernel. Neighbouring messages of one session and one
// source are a run; what is true of all of a run is looked up once.
type opener struct {
	bind    *bind
	wg      *device.Device
	helpers *helpers
	write   func(packets [][]byte, offset int) (int, error)

	now      time.Time
	runs     []run
	messages []received
	bytes    int
	packets  [][]byte // each with the header of its message in front
	openers  [parts]transport.Opener
	done     sync.WaitGroup
}

// run is a run of messages.
type run struct {
	index uint32
	from  *remoteEndpoint
	peer  *device.Peer // nil: there is no such session
	pair  *device.Keypair
	paths *peerEndpoint
	end   int // behind its last message in messages
}

// received is a message of a session.
type received struct {
	message []byte
	pair    *device.Keypair
	size    int // of the packet in it, with padding; -1: it is not authentic
	counter uint64
}

// opener returns an opener, or nil if all messages go to the library.
func (b *bind) opener() *opener {
	if b.wg == nil {
		return nil
	}
	return &opener{bind: b, wg: b.wg, helpers: b.helpers, write: b.write}
}

// begin begins a batch.
func (o *opener) begin() {
	if o != nil {
		o.now = time.Now()
	}
}

// add takes a message of the batch, and reports whether it is a transport message.
func (o *opener) add(message []byte, from *remoteEndpoint) bool {
	if o == nil {
		return false
	}
	index, ok := transport.Session(message)
	if !ok {
		return false
	}
	if len(o.messages) == batchSize {
		o.end()
	}
	if k := len(o.runs) - 1; k < 0 || o.runs[k].from != from || o.runs[k].index != index {
		o.beginRun(index, from)
	}
	r := &o.runs[len(o.runs)-1]
	if r.peer == nil {
		return true
	}
	o.messages = append(o.messages, received{message: message, pair: r.pair})
	r.end = len(o.messages)
	o.bytes += len(message)
	return true
}

// beginRun begins a run. Garbage makes many: what follows one without a session takes its place.
func (o *opener) beginRun(index uint32, from *remoteEndpoint) {
	r := run{index: index, from: from, end: len(o.messages)}
	peer, pair := o.wg.Session(index, o.now)
	if peer != nil && peer.Running() {
		if r.paths = o.bind.peerOf(Key(peer.Key())); r.paths != nil { // nil: it is being removed
			r.peer, r.pair = peer, pair
		}
	}
	if k := len(o.runs) - 1; k >= 0 && o.runs[k].peer == nil {
		o.runs[k] = r
		return
	}
	o.runs = append(o.runs, r)
}

// end ends a batch: it opens the messages and gives the packets to the kernel.
func (o *opener) end() {
	if o == nil {
		return
	}
	o.helpers.run(o, len(o.messages), o.bytes, &o.done)
	from := 0
	for i := range o.runs {
		r := &o.runs[i]
		o.accept(r, o.messages[from:r.end])
		from = r.end
	}
	if len(o.packets) > 0 {
		if _, err := o.write(o.packets, transport.HeaderSize); err != nil {
			o.wg.WriteFailed(err)
		}
	}
	clear(o.runs)
	clear(o.messages)
	clear(o.packets)
	o.runs, o.messages, o.packets, o.bytes = o.runs[:0], o.messages[:0], o.packets[:0], 0
}

// do implements divisible.
func (o *opener) do(part, from, to int) {
	for i := from; i < to; i++ {
		m := &o.messages[i]
		packet, counter, ok := o.openers[part].Open(m.pair.Receive(), m.message)
		m.size, m.counter = len(packet), counter
		if !ok {
			m.size = -1
		}
	}
}

// accept collects the packets of a run that are authentic, new, and from an address of the peer.
func (o *opener) accept(r *run, messages []received) {
	if len(messages) == 0 {
		return
	}
	var last netip.Addr // the last source that the peer may use
	size, accepted, data := 0, false, false
	// what was received before is recorded by one goroutine at a time
	r.paths.receiving.Lock()
	for i := range messages {
		m := &messages[i]
		if m.size < 0 || !r.pair.Accept(m.counter) {
			continue
		}
		if !accepted {
			accepted = true
			if r.peer.Received(r.pair) {
				o.bind.onSession(Key(r.peer.Key()))
			}
		}
		size += len(m.message)
		if m.size == 0 {
			continue // a keepalive
		}
		data = true
		packet := m.message[transport.HeaderSize : transport.HeaderSize+m.size]
		src, n := source(packet), trueSize(packet)
		if n == 0 || src != last && !r.peer.AllowedPeerSourceIP(src) {
			o.bind.spoofed.Add(1)
			continue
		}
		last = src
		o.packets = append(o.packets, m.message[:transport.HeaderSize+n])
	}
	r.paths.receiving.Unlock()
	if accepted {
		r.from.fromPeer(r.paths)
		r.peer.ReceivedAll(size, data)
	}
}

// trueSize is the size of a packet without its padding, 0 if it is not a packet.
func trueSize(p []byte) int {
	n := 0
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		n = int(binary.BigEndian.Uint16(p[2:]))
	case len(p) >= 40 && p[0]>>4 == 6:
		n = int(binary.BigEndian.Uint16(p[4:])) + 40
	}
	if n < 20 || n > len(p) {
		return 0
	}
	return n
}
