package overlay

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// PMTU probes find out how large packets a path over IPv6 carries (packetization layer path MTU
// discovery, RFC 8899). Routers do not fragment there; one that drops what is too large without an
// ICMP error lets small packets through and large ones vanish. A node therefore sends datagrams as
// large as its largest packets, and the other end acknowledges those that came. Any other WireGuard
// ignores them, as it does all messages of unknown types; then nothing is known, and nothing
// changes. Probe and acknowledgement begin alike:
//
//	type (1 byte)  zero (3)  size of the probe (4)  number (8)  code (16)
//
// The code authenticates what is before it by a key that both ends compute from their static keys,
// one for each direction: a node does not accept its own messages. Padding follows in a probe. The
// acknowledgement is never larger than the probe.
const (
	typeProbe    = 0x80
	typeProbeAck = 0x81

	probeMACAt   = 16 // offset of the code
	sizeProbeAck = 32
)

const (
	// probeEvery is how often a path in use is probed.
	probeEvery = 30 * time.Second
	// probeEveryMax is the longest interval when the peer does not answer.
	probeEveryMax = 10 * time.Minute
	// probeTimeout is how long an answer may take before the next try; an answer to an earlier one
	// counts, too.
	probeTimeout = 300 * time.Millisecond
	// probeTries is how often the full size is tried. The size of a path that loses a tenth of all
	// datagrams in each direction is wrong once in 20,000 probes.
	probeTries = 6
	// raiseEvery is how often a larger size is tried on a path that was found small
	// (PMTU_RAISE_TIMER of RFC 8899).
	raiseEvery = 5 * time.Minute
	// reportEvery is how often the kernel's path MTU is set again on a path on which it has to
	// fragment: it expires, after ten minutes by default.
	reportEvery = time.Second
)

// headers6 is what UDP and IPv6 add to a datagram.
const headers6 = 40 + 8

// probeSizes are common MTUs of links and tunnels, tried beside our own largest size. The first has
// to pass everywhere.
var probeSizes = [...]int{1280, 1360, 1400, 1420, 1440, 1452, 1460, 1472, 1480, 1492}

// prober searches the PMTU of the current path of a peer.
type prober struct {
	mu     sync.Mutex
	path   netip.AddrPort
	try    int // 0 when no search is under way
	due    int64
	number uint64
	full   int   // largest size of this search
	probed []int // sizes that were probed in this search
	acked  int   // largest size that was acknowledged; 0 for none
	// when the largest size of all was last probed, although the path was found too small for it
	raised  int64
	backoff time.Duration
}

// step is called periodically. It returns the sizes of the probes to send now, or the PMTU that was
// found, if it is not full. full is the size of the largest packets on the path, and widest their
// size where nothing is known: a PMTU may have increased.
func (s *prober) step(path netip.AddrPort, full, widest int, now int64) (send []int, found int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path != path {
		s.path, s.try, s.due, s.backoff, s.raised = path, 0, now, probeEvery, now-int64(raiseEvery)
	}
	wait := func(d time.Duration) { s.due = now + int64(d) }
	switch {
	case s.try > 0 && s.acked == s.full:
		s.try, s.backoff = 0, probeEvery
		if wait(probeEvery); s.full > full {
			return nil, s.full
		}
	case now < s.due:
	case s.try == 0:
		if full < widest && now-s.raised >= int64(raiseEvery) {
			s.raised, full = now, widest
		}
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		s.try, s.full, s.acked, s.number = 1, full, 0, binary.NativeEndian.Uint64(b[:])
		s.probed = append(s.probed[:0], full)
		wait(probeTimeout)
		return []int{full}, 0
	case s.try < probeTries:
		s.try++
		wait(probeTimeout)
		for _, d := range probeSizes {
			if d < s.full && (s.acked > 0 || len(send) == 0) {
				send = append(send, d)
			}
		}
		s.probed = append(s.probed, send...)
		return append(send, s.full), 0
	case s.acked == 0:
		s.try = 0
		wait(s.backoff)
		s.backoff = min(2*s.backoff, probeEveryMax)
	default:
		s.try, s.backoff, s.raised = 0, probeEvery, now
		wait(probeEvery)
		return nil, s.acked
	}
	return nil, 0
}

// answered records that a probe of some size reached the other end. A size that was not probed is
// ignored.
func (s *prober) answered(number uint64, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.try > 0 && number == s.number && slices.Contains(s.probed, size) {
		s.acked = max(s.acked, size)
	}
}

// message returns a probe or an acknowledgement that makes an IPv6 packet of some size.
func (p *peerEndpoint) message(kind byte, size int) []byte {
	key, _ := p.probeKeys()
	if key == nil {
		return nil
	}
	p.prober.mu.Lock()
	number := p.prober.number
	p.prober.mu.Unlock()
	m := make([]byte, size-headers6)
	m[0] = kind
	binary.LittleEndian.PutUint32(m[4:], uint32(size))
	binary.LittleEndian.PutUint64(m[8:], number)
	copy(m[probeMACAt:], code(key, m))
	return m
}

// code authenticates the beginning of a message.
func code(key, m []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(m[:probeMACAt])
	return h.Sum(nil)[:sizeProbeAck-probeMACAt]
}

// probeKeys returns the keys that this node shares with the peer alone, for sending and for
// receiving; nil when the peer's key is not valid.
func (p *peerEndpoint) probeKeys() (out, in []byte) {
	p.keyOnce.Do(func() {
		private, err := ecdh.X25519().NewPrivateKey(p.bind.private[:])
		if err != nil {
			return
		}
		public, err := ecdh.X25519().NewPublicKey(p.key[:])
		if err != nil {
			return
		}
		if secret, err := private.ECDH(public); err == nil {
			key := func(sender []byte) []byte {
				sum := sha256.Sum256(slices.Concat([]byte("weir PMTU probe 3"), secret, sender))
				return sum[:]
			}
			p.keyOut, p.keyIn = key(private.PublicKey().Bytes()), key(p.key[:])
		}
	})
	return p.keyOut, p.keyIn
}

// probe handles a message if it is a probe or an acknowledgement, and reports whether it is one.
func (b *bind) probe(m []byte, a *remoteEndpoint) bool {
	if len(m) == 0 || m[0] != typeProbe && m[0] != typeProbeAck {
		return false
	}
	b.handleProbe(m, a)
	return true
}

// handleProbe handles a probe or an acknowledgement. Those that do not come from the source of an
// authentic packet are ignored.
func (b *bind) handleProbe(m []byte, a *remoteEndpoint) {
	p := a.owner.Load()
	if p == nil || len(m) < sizeProbeAck {
		return
	}
	size := int(binary.LittleEndian.Uint32(m[4:]))
	if m[0] == typeProbe && size != len(m)+headers6 || m[0] == typeProbeAck &&
		len(m) != sizeProbeAck {
		return
	}
	out, in := p.probeKeys()
	if in == nil || !hmac.Equal(code(in, m), m[probeMACAt:sizeProbeAck]) {
		return
	}
	if m[0] == typeProbeAck {
		p.prober.answered(binary.LittleEndian.Uint64(m[8:]), size)
		return
	}
	var answer [sizeProbeAck]byte
	copy(answer[:], m)
	answer[0] = typeProbeAck
	copy(answer[probeMACAt:], code(out, answer[:]))
	b.sendOne(answer[:], p, &a.path) // what receives must not wait
}

// probePMTU probes the paths in use.
func (d *Device) probePMTU() {
	if !d.autoMTU {
		return
	}
	now := d.bind.now()
	for _, p := range d.bind.allPeers() {
		h := p.current.Load()
		if h == nil || !h.addr.Addr().Is6() || h.addr.Addr().Is4In6() || !h.local.IsValid() ||
			!p.inUse(now) {
			continue
		}
		widest := int(d.tun.mtu.Load()) + overhead(h.addr.Addr())
		full := widest
		if n := int(p.pathMTU.Load()); n > 0 {
			full = n + overhead(h.addr.Addr())
		}
		if p.kernelPMTU.path == h.addr {
			widest = full // the kernel fragments here, so that every size comes through
		}
		send, found := p.prober.step(h.addr, full, widest, now)
		for _, size := range send {
			if m := p.message(typeProbe, size); m != nil {
				d.bind.sendOne(m, p, h)
			}
		}
		if found > 0 {
			d.setPathMTU(p, h, found)
		} else if p.kernelPMTU.path == h.addr && now-p.kernelPMTU.when > int64(reportEvery) {
			p.kernelPMTU.when = now
			_ = d.bind.sendTooBig(h, p.kernelPMTU.size) // it worked before
		}
	}
}

// kernelPMTU is the PMTU of a path that was set in the kernel.
type kernelPMTU struct {
	path netip.AddrPort
	size int
	when int64
}

// setPathMTU limits the packets to a peer to what its path carries. Where that is less than MinMTU,
// it does what a router's Packet Too Big would have done: the kernel fragments.
func (d *Device) setPathMTU(p *peerEndpoint, h *path, size int) {
	fits := (size - overhead(h.addr.Addr())) &^ (padding - 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	was, now := int(p.pathMTU.Load()), max(fits, MinMTU)
	if now >= int(d.tun.mtu.Load()) {
		now = 0
	}
	known := d.peers[p.key]
	// the routes of other peers are not ours
	if fits < MinMTU || known == nil || known.Unencrypted {
		if err := d.bind.sendTooBig(h, size); err != nil {
			d.log.Warn("cannot set the path MTU", "peer", p.key.String(), "err", err)
		}
		p.kernelPMTU = kernelPMTU{h.addr, size, d.bind.now()}
	}
	if was == now {
		return
	}
	d.log.Info("path MTU differs from that of the first link, and no router reported it",
		"peer", p.key.String(), "path", h.addr.String(), "size", size)
	p.pathMTU.Store(int32(now))
	if known == nil {
		return
	}
	if err := d.addRoutes(known, known); err != nil { // in place
		d.log.Warn("cannot set the MTU", "peer", p.key.String(), "err", err)
	}
	d.rangesChanged()
}
