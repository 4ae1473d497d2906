package overlay

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// remoteEndpoint is the source of a received packet, as a conn.Endpoint. One is kept for each
// source, so that receiving allocates nothing.
type remoteEndpoint struct {
	path
	bind  *bind
	seen  atomic.Int64                 // when a packet came last, ns of the bind's clock
	data  atomic.Bool                  // whether there was more than keepalives in the last read
	owner atomic.Pointer[peerEndpoint] // of which the last authentic packet was
}

// FromPeer implements conn.PeerAwareEndpoint: an authentic packet of the peer with this key came
// from here.
func (a *remoteEndpoint) FromPeer(key [32]byte) {
	if p := a.bind.peerOf(key); p != nil {
		a.fromPeer(p)
	}
}

// fromPeer is called when an authentic packet of p came from here. A peer that was removed and
// added again is another p.
func (a *remoteEndpoint) fromPeer(p *peerEndpoint) {
	if a.owner.Load() != p {
		a.owner.Store(p)
	}
	p.fromPeer(&a.path, a.seen.Load(), a.data.Load())
}

// Initiated implements device.HandshakeEndpoint.
func (a *remoteEndpoint) Initiated(key [32]byte) {
	if p := a.bind.peerOf(key); p != nil {
		p.initiator.Store(&a.path)
	}
}

// Responded implements device.HandshakeEndpoint.
func (a *remoteEndpoint) Responded(key [32]byte, index uint32) {
	if p := a.bind.peerOf(key); p != nil {
		p.answered(index, &a.path, a.seen.Load())
	}
}

// Dropped implements device.HandshakeEndpoint.
func (a *remoteEndpoint) Dropped() { a.bind.handshakesFull.Add(1) }

// ClearSrc implements conn.Endpoint; the next packet brings a new address.
func (a *remoteEndpoint) ClearSrc() {}

// SrcToString implements conn.Endpoint.
func (a *remoteEndpoint) SrcToString() string { return a.local.String() }

// DstToString implements conn.Endpoint.
func (a *remoteEndpoint) DstToString() string { return a.addr.String() }

// DstToBytes implements conn.Endpoint.
func (a *remoteEndpoint) DstToBytes() []byte {
	b, _ := a.addr.MarshalBinary()
	return b
}

// DstIP implements conn.Endpoint.
func (a *remoteEndpoint) DstIP() netip.Addr { return a.addr.Addr() }

// SrcIP implements conn.Endpoint.
func (a *remoteEndpoint) SrcIP() netip.Addr { return a.local }

// remotes finds the remoteEndpoint of a source. Anyone can send from any number of addresses, so
// the table is bounded; a full one is emptied, which costs each peer one allocation.
type remotes struct {
	mu sync.Mutex
	m  map[path]*remoteEndpoint
}

const remoteLimit = 4096

func (t *remotes) get(b *bind, h path) *remoteEndpoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.m[h]
	if a == nil {
		if t.m == nil || len(t.m) >= remoteLimit {
			t.m = map[path]*remoteEndpoint{}
		}
		a = &remoteEndpoint{path: h, bind: b}
		t.m[h] = a
	}
	return a
}
