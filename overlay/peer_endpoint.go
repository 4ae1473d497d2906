package overlay

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/udp"
)

// path is a path to a peer: its address, and the local address and interface that it sent to. It is
// immutable.
type path struct {
	addr    netip.AddrPort
	local   netip.Addr
	ifindex int
}

// WireGuard's message types, in the first byte (the next three are zero).
const (
	typeInitiation = 1
	typeResponse   = 2
	typeData       = 4

	sizeInitiation = 148
	sizeResponse   = 92
	sizeKeepalive  = 32
)

const (
	// quiet is how long a peer with which data is exchanged may be silent before its other
	// endpoints are tried.
	quiet = 300 * time.Millisecond
	// tryAll is how long it takes at most until all endpoints were tried for a session, while there
	// are at most nine.
	tryAll = 900 * time.Millisecond
	// busy is how long after the last data a peer counts as in use, so that its silence matters.
	busy = 5 * time.Second
	// mirrorGap is the least time between two batches that go to all endpoints.
	mirrorGap = 50 * time.Millisecond
)

// peerEndpoint is the state of the paths to one peer. As a conn.Endpoint it stands for the peer, at
// whatever address.
type peerEndpoint struct {
	bind *bind
	key  Key

	current      atomic.Pointer[path] // where packets go; nil before the first address
	initiator    atomic.Pointer[path] // where its newest authentic initiation came from, or nil
	lastReceived atomic.Int64         // when an authentic packet came last, ns of the bind's clock
	data         atomic.Int64         // when data went or came last
	mirrored     atomic.Int64         // when a batch went to all endpoints last
	moves        atomic.Uint64
	// bytes of datagrams; the library's own count includes bytes that it only reserves
	sent atomic.Uint64
	rtt  atomic.Int64 // ns

	begun atomic.Uint64 // handshakes

	mu         sync.Mutex
	candidates []netip.AddrPort
	initiation [sizeInitiation]byte // the newest one sent
	initSent   int64                // time, 0 when answered
	initTried  int                  // to how many other candidates it was sent
	initLast   int64                // when it was sent to the last one of them

	senders   [2]atomic.Pointer[udp.Conn] // for data, by IP version; nil until the first
	receiving sync.Mutex                  // held while messages of the peer are opened
	waiting   waiting

	prober     prober
	kernelPMTU kernelPMTU // used by the watch goroutine only
	routed     int64      // time when the route was last checked
	keyOnce    sync.Once
	keyOut     []byte
	keyIn      []byte
	// MTU of packets to the peer where its path carries less than the interface's; 0 for the
	// interface's
	pathMTU atomic.Int32
}

var errNoAddress = errors.New("overlay: the peer has no endpoint yet and has not connected")

// setCandidates replaces the candidates. The path of a peer that was heard stays, even if it is not
// one of them: the next authentic packet decides. Without one, the first candidate is the path, and
// an initiation that was not answered goes there at once; WireGuard would retry after five seconds
// only.
func (p *peerEndpoint) setCandidates(list []netip.AddrPort) {
	p.mu.Lock()
	p.candidates = list
	var waiting []byte
	now := p.current.Load()
	noAnswer := now == nil || p.lastReceived.Load() == 0 && !slices.Contains(list, now.addr)
	if len(list) > 0 && noAnswer && p.current.CompareAndSwap(now, &path{addr: list[0]}) &&
		p.initSent != 0 {
		m := p.initiation
		waiting = m[:]
		p.initSent = p.bind.now()
		p.initLast = p.initSent
	}
	p.mu.Unlock()
	if waiting != nil {
		p.bind.sendInitiation(waiting, list[0])
	}
}

// others returns the candidates except for the current path, in a new slice. It is called only when
// a path is in doubt.
func (p *peerEndpoint) others(now *path) []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []netip.AddrPort
	for _, a := range p.candidates {
		if now == nil || a != now.addr {
			list = append(list, a)
		}
	}
	return list
}

// hasChoice reports whether there is more than one candidate.
func (p *peerEndpoint) hasChoice() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.candidates) > 1 || len(p.candidates) == 1 && p.current.Load() != nil &&
		p.current.Load().addr != p.candidates[0]
}

// fromPeer records that an authentic packet came over h. The newest one decides where packets go.
func (p *peerEndpoint) fromPeer(h *path, now int64, data bool) {
	p.lastReceived.Store(now)
	if data {
		p.data.Store(now)
	}
	old := p.current.Load()
	if old == h || old != nil && *old == *h {
		return
	}
	if !p.current.CompareAndSwap(old, h) {
		return // another goroutine received one at the same time
	}
	if old != nil && old.addr != h.addr {
		p.moves.Add(1)
		p.bind.moved(p, old.addr, h.addr)
	}
}

// silent reports whether a packet of the peer is overdue.
func (p *peerEndpoint) silent(now int64) bool { return now-p.lastReceived.Load() > int64(quiet) }

// inUse reports whether data was sent or received lately.
func (p *peerEndpoint) inUse(now int64) bool { return now-p.data.Load() < int64(busy) }

// mayMirror claims the right to send one batch to all endpoints.
func (p *peerEndpoint) mayMirror(now int64) bool {
	last := p.mirrored.Load()
	return now-last > int64(mirrorGap) && p.mirrored.CompareAndSwap(last, now)
}

// sentInitiation records an initiation: the response gives the round trip time and the path.
func (p *peerEndpoint) sentInitiation(msg []byte, now int64) {
	p.mu.Lock()
	copy(p.initiation[:], msg)
	p.initSent, p.initLast, p.initTried = now, now, 0
	p.mu.Unlock()
}

// lateInitiation returns the newest initiation and the next candidate to send it to, when it was
// not answered for a step. With atOnce the last candidate cannot be reached, so there is no wait
// for a step.
func (p *peerEndpoint) lateInitiation(now int64, atOnce bool) (msg []byte, to netip.AddrPort,
	late bool) {
	cur := p.current.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	// The more there are, the shorter the step, so that the last one is tried within a second.
	step := max(int64(watchEvery),
		min(int64(quiet), int64(tryAll)/int64(max(1, len(p.candidates)))))
	if p.initSent == 0 || !atOnce && now-p.initSent < step*int64(p.initTried+1) {
		return nil, to, false
	}
	turn := 0
	for _, a := range p.candidates {
		if cur != nil && a == cur.addr {
			continue
		}
		if turn == p.initTried {
			p.initTried++
			p.initLast = now
			m := p.initiation
			return m[:], a, true
		}
		turn++
	}
	return nil, to, false
}

// answered is called with the authentic response to our initiation with an index. If that is the
// newest, this is the fastest path, and the round trip time is known.
func (p *peerEndpoint) answered(index uint32, h *path, now int64) {
	p.mu.Lock()
	if p.initSent == 0 || binary.LittleEndian.Uint32(p.initiation[4:]) != index {
		p.mu.Unlock()
		return
	}
	p.rtt.Store(now - p.initLast)
	p.initSent = 0
	raced := p.initTried > 0
	p.mu.Unlock()
	p.bind.answered.Add(1)
	if cur := p.current.Load(); raced && (cur == nil || cur.addr != h.addr) {
		p.bind.byOther.Add(1)
	}
	p.fromPeer(h, now, false)
}

// ClearSrc implements conn.Endpoint: it clears the local address, which the system may have lost.
func (p *peerEndpoint) ClearSrc() {
	if h := p.current.Load(); h != nil && h.local.IsValid() {
		p.current.CompareAndSwap(h, &path{addr: h.addr})
	}
}

// SrcToString implements conn.Endpoint.
func (p *peerEndpoint) SrcToString() string {
	if h := p.current.Load(); h != nil && h.local.IsValid() {
		return h.local.String()
	}
	return ""
}

// DstToString implements conn.Endpoint. It is empty without an address.
func (p *peerEndpoint) DstToString() string {
	if h := p.current.Load(); h != nil {
		return h.addr.String()
	}
	return ""
}

// DstToBytes implements conn.Endpoint.
func (p *peerEndpoint) DstToBytes() []byte {
	if h := p.current.Load(); h != nil {
		b, _ := h.addr.MarshalBinary()
		return b
	}
	return nil
}

// DstIP implements conn.Endpoint.
func (p *peerEndpoint) DstIP() netip.Addr {
	if h := p.current.Load(); h != nil {
		return h.addr.Addr()
	}
	return netip.Addr{}
}

// SrcIP implements conn.Endpoint.
func (p *peerEndpoint) SrcIP() netip.Addr {
	if h := p.current.Load(); h != nil {
		return h.local
	}
	return netip.Addr{}
}
