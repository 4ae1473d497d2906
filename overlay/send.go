package overlay

import (
	"errors"
	"net"
	"net/netip"
	"syscall"

	"github.com/tailscale/wireguard-go/conn"

	"github.com/weirnet/weir/udp"
)

// batch is the memory of one Send.
type batch struct {
	peer   *peerEndpoint // whose socket is used, or nil for that of handshakes
	unsent int           // bytes for which there was no space
	full   uint64        // messages for which there was none
	msgs   []udp.Message
	views  [][]byte // msgs[i].Buffers is views[i:i+1]
}

func newBatch() *batch {
	s := &batch{msgs: make([]udp.Message, batchSize), views: make([][]byte, batchSize)}
	for i := range s.msgs {
		s.msgs[i].Buffers = s.views[i : i+1 : i+1]
	}
	return s
}

func (b *bind) putBatch(s *batch) {
	b.sendFull.Add(s.full)
	s.peer, s.unsent, s.full = nil, 0, 0
	clear(s.views)
	b.batches.put(s)
}

// Send implements conn.Bind.
func (b *bind) Send(bufs [][]byte, ep conn.Endpoint, offset int) error {
	s := b.batches.get()
	defer b.putBatch(s)
	n := min(len(bufs), batchSize)
	for i, buf := range bufs[:n] {
		s.views[i] = buf[offset:]
	}
	var err error
	switch e := ep.(type) {
	case *peerEndpoint:
		if err = b.sendToPeer(s, n, e); err == nil {
			size := 0
			for _, view := range s.views[:n] {
				size += len(view)
			}
			e.sent.Add(uint64(max(0, size-s.unsent)))
		}
	case *remoteEndpoint:
		err = b.sendCookie(s, n, e)
	default:
		return conn.ErrWrongEndpointType
	}
	if err != nil {
		b.sendErrors.Add(1)
	}
	return err
}

// sendToPeer sends n messages over the current path, and to the other candidates when that path is
// in doubt.
func (b *bind) sendToPeer(s *batch, n int, p *peerEndpoint) error {
	now := b.now()
	cur := p.current.Load()
	head := s.views[0]
	switch {
	case len(head) == sizeInitiation && head[0] == typeInitiation:
		// One after the other: WireGuard's workers may take both of two copies that come at once,
		// and the ends then have different keys.
		p.sentInitiation(head, now)
		b.begun.Add(1)
		p.begun.Add(1)
		return b.sendCandidates(s, n, p, cur, false)
	case len(head) == sizeResponse && head[0] == typeResponse:
		b.accepted.Add(1)
		// It goes to where the initiation came from that it answers, which says nothing of where
		// other packets should go: the peer may try this path because another is slow.
		if from := p.initiator.Load(); from != nil {
			return b.sendOver(s, n, from)
		}
	}
	if n > 1 || len(head) > sizeKeepalive {
		p.data.Store(now)
	}
	s.peer = p
	return b.sendCandidates(s, n, p, cur, p.silent(now) && p.inUse(now) && p.mayMirror(now))
}

// sendCandidates sends n messages over the current path, and with all set to all other candidates
// too. It fails only when none worked.
func (b *bind) sendCandidates(s *batch, n int, p *peerEndpoint, cur *path, all bool) error {
	err := errNoAddress
	if cur != nil {
		if err = b.sendOver(s, n, cur); isGone(err) && cur.local.IsValid() {
			// This host lost the address that the peer sends to: let the system choose another.
			cur = &path{addr: cur.addr}
			p.ClearSrc()
			err = b.sendOver(s, n, cur)
		}
	}
	if err == nil && !all {
		return nil
	}
	for _, a := range p.others(cur) {
		if e := b.sendOver(s, n, &path{addr: a}); e == nil {
			err = nil
		}
	}
	return err
}

// isGone reports whether an error of sending means that the local address, or the route from it, is
// gone.
func isGone(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.Is(err, syscall.EADDRNOTAVAIL) ||
		errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EHOSTUNREACH)
}

// sendOver sends n messages over one path. One that fails does not stop the others.
func (b *bind) sendOver(s *batch, n int, h *path) error {
	var c *udp.Conn
	if s.peer != nil {
		c = b.senderTo(s.peer, h.addr.Addr())
	} else {
		c = b.connFor(h.addr.Addr())
	}
	if c == nil {
		return net.ErrClosed
	}
	for i := range n {
		m := &s.msgs[i]
		m.Addr, m.Local, m.IfIndex = h.addr, h.local, 0
		if h.addr.Addr().IsLinkLocalUnicast() {
			m.IfIndex = h.ifindex
		}
	}
	var first error
	for at := 0; at < n; at++ {
		k, err := c.WriteBatch(s.msgs[at:n])
		if at += k; err == nil {
			break
		}
		if errors.Is(err, udp.ErrFull) { // the link is slower than what goes there
			s.full += uint64(n - at)
			for _, view := range s.views[at:n] {
				s.unsent += len(view)
			}
			break
		}
		if first == nil {
			first = err
		}
		if errors.Is(err, net.ErrClosed) {
			break
		}
	}
	return first
}

// sendInitiation sends a handshake initiation that was not answered in time to another endpoint,
// and reports whether it was sent.
func (b *bind) sendInitiation(msg []byte, to netip.AddrPort) bool {
	return b.sendOne(msg, nil, &path{addr: to})
}

// sendOne sends a message over one path and reports whether it was sent. With a peer it leaves by
// the socket of that one's data, and is dropped if that is full.
func (b *bind) sendOne(msg []byte, p *peerEndpoint, h *path) bool {
	s := b.batches.get()
	defer b.putBatch(s)
	s.peer = p
	s.views[0] = msg
	if b.sendOver(s, 1, h) != nil {
		b.sendErrors.Add(1)
		return false
	}
	return true
}
