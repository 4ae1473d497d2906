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

// Soundings find out what a path over IPv6 carries. Routers do not fragment there; one that
// swallows what is too large and says nothing lets small packets through and large ones vanish. A
// node therefore sends datagrams as large as its largest packets, and the other end says which
// came. Any other WireGuard ignores them, as it does all messages of unknown types; then nothing is
// known, and nothing is changed.
//
// Both messages begin alike:
//
//	type (1 byte)  zero (3)  size of the sounding (4)  number (8)  code (16)
//
// The code authenticates what is before it by a key that both ends compute from their static keys,
// another one for each direction: what a node said itself, it does not believe. Filler follows in a
// sounding. The answer is never larger than what it answers.
const (
	typeProbe    = 0x80
	typeProbeAck = 0x81

	probeMACAt   = 16 // where it begins
	sizeProbeAck = 32
)

const (
	// probeEvery is how often a path in use is sounded.
	probeEvery = 30 * time.Second
	// probeEveryMax is how seldom at most when nobody answers.
	probeEveryMax = 10 * time.Minute
	// probeTimeout is how long an answer may take before the next try; an answer to an earlier one
	// counts, too.
	probeTimeout = 300 * time.Millisecond
	// probeTries is how often the full size is tried. A path that loses a tenth of all datagrams
	// either way is misjudged once in 20,000 soundings.
	probeTries = 6
	// raiseEvery is how often a path that was found small is asked whether it still is.
	raiseEvery = 5 * time.Minute
	// reportEvery is how often the kernel is told of a path on which it has to fragment: it
	// forgets, after ten minutes as a rule.
	reportEvery = time.Second
)

// headers6 is what UDP and IPv6 add to a datagram.
const headers6 = 40 + 8

// depths are sizes of IPv6 packets that links and tunnels have, beside the largest one of ours. The
// first has to pass everywhere.
var probeSizes = [...]int{1280, 1360, 1400, 1420, 1440, 1452, 1460, 1472, 1480, 1492}

// sounding is what is known of the size of the current path of a peer.
type prober struct {
	mu     sync.Mutex
	path   netip.AddrPort
	try    int // 0 when none is under way
	due    int64
	number uint64
	full   int   // size of the largest packet that was probed about
	probed []int // sizes that were probed about since then
	acked  int   // size of the largest that was answered; 0 for none
	// when the largest of all was asked about last, although the path was found too small for it
	raised  int64
	backoff time.Duration
}

// turn is called over and over. It returns the sizes of the packets to send now, or the size that a
// path turned out to have, which is not full. full is the size of the largest packets on the path,
// and widest what they have where nothing is known: a path may have become larger.
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

// answered notes that a packet of some size came at the other end. A size that nobody asked about
// is a lie.
func (s *prober) answered(number uint64, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.try > 0 && number == s.number && slices.Contains(s.probed, size) {
		s.acked = max(s.acked, size)
	}
}

// message makes a message for a packet of some size.
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

// probeKeys returns the keys that this node shares with the peer alone, of what it sends and of what
// it receives; nil when the peer's is none.
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
				sum := sha256.Sum256(slices.Concat([]byte("weir sounding 2"), secret, sender))
				return sum[:]
			}
			p.keyOut, p.keyIn = key(private.PublicKey().Bytes()), key(p.key[:])
		}
	})
	return p.keyOut, p.keyIn
}

// sounded handles a sounding, or an answer to one. Only sources of authentic packets are listened
// to.
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
	b.sendOne(answer[:], &a.path)
}

// sound has the paths in use sounded.
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
			widest = full // the kernel fragments here, so that everything comes through
		}
		send, found := p.prober.step(h.addr, full, widest, now)
		for _, size := range send {
			if m := p.message(typeProbe, size); m != nil {
				d.bind.sendOne(m, h)
			}
		}
		if found > 0 {
			d.setPathMTU(p, h, found)
		} else if p.kernelPMTU.path == h.addr && now-p.kernelPMTU.when > int64(reportEvery) {
			p.kernelPMTU.when = now
			_ = d.bind.sendTooBig(h, p.kernelPMTU.size) // has worked before
		}
	}
}

// told is what the kernel was told of a path.
type kernelPMTU struct {
	path netip.AddrPort
	size int
	when int64
}

// resize makes the packets to a peer as large as its path carries. Where that is less than they may
// have, it does what a router's report would have done: the kernel fragments.
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
	if fits < MinMTU || known == nil || known.Unencrypted { // the routes of others are not ours
		if err := d.bind.sendTooBig(h, size); err != nil {
			d.log.Warn("path size", "peer", p.key.String(), "error", err)
		}
		p.kernelPMTU = kernelPMTU{h.addr, size, d.bind.now()}
	}
	if was == now {
		return
	}
	d.log.Info("the path to a peer has another size than its first link, and no router said so",
		"peer", p.key.String(), "path", h.addr.String(), "size", size)
	p.pathMTU.Store(int32(now))
	if known == nil {
		return
	}
	if err := d.addRoutes(known, known); err != nil { // in place
		d.log.Warn("mtu", "peer", p.key.String(), "error", err)
	}
	d.updateRangeMTUs()
}
