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
	typeSounding = 0x80
	typeSounded  = 0x81

	soundingCode = 16 // where it begins
	sizeSounded  = 32
)

const (
	// soundEvery is how often a path in use is sounded.
	soundEvery = 30 * time.Second
	// soundSeldom is how seldom at most when nobody answers.
	soundSeldom = 10 * time.Minute
	// soundGap is how long an answer may take before the next try; an answer to an earlier one
	// counts, too.
	soundGap = 300 * time.Millisecond
	// soundTries is how often the full size is tried. A path that loses a tenth of all datagrams
	// either way is misjudged once in 20,000 soundings.
	soundTries = 6
	// widenEvery is how often a path that was found small is asked whether it still is.
	widenEvery = 5 * time.Minute
	// retellEvery is how often the kernel is told of a path on which it has to fragment: it
	// forgets, after ten minutes as a rule.
	retellEvery = time.Second
)

// headers6 is what UDP and IPv6 add to a datagram.
const headers6 = 40 + 8

// depths are sizes of IPv6 packets that links and tunnels have, beside the largest one of ours. The
// first has to pass everywhere.
var depths = [...]int{1280, 1360, 1400, 1420, 1440, 1452, 1460, 1472, 1480, 1492}

// sounding is what is known of the size of the current path of a peer.
type sounding struct {
	mu     sync.Mutex
	path   netip.AddrPort
	try    int // 0 when none is under way
	due    int64
	number uint64
	full   int   // size of the largest packet that was asked about
	asked  []int // sizes that were asked about since then
	came   int   // size of the largest that was answered; 0 for none
	// when the largest of all was asked about last, although the path was found too small for it
	widened int64
	silence time.Duration
}

// turn is called over and over. It returns the sizes of the packets to send now, or the size that a
// path turned out to have, which is not full. full is the size of the largest packets on the path,
// and widest what they have where nothing is known: a path may have become larger.
func (s *sounding) turn(path netip.AddrPort, full, widest int, now int64) (send []int, found int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path != path {
		s.path, s.try, s.due, s.silence, s.widened = path, 0, now, soundEvery, now-int64(widenEvery)
	}
	wait := func(d time.Duration) { s.due = now + int64(d) }
	switch {
	case s.try > 0 && s.came == s.full:
		s.try, s.silence = 0, soundEvery
		if wait(soundEvery); s.full > full {
			return nil, s.full
		}
	case now < s.due:
	case s.try == 0:
		if full < widest && now-s.widened >= int64(widenEvery) {
			s.widened, full = now, widest
		}
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		s.try, s.full, s.came, s.number = 1, full, 0, binary.NativeEndian.Uint64(b[:])
		s.asked = append(s.asked[:0], full)
		wait(soundGap)
		return []int{full}, 0
	case s.try < soundTries:
		s.try++
		wait(soundGap)
		for _, d := range depths {
			if d < s.full && (s.came > 0 || len(send) == 0) {
				send = append(send, d)
			}
		}
		s.asked = append(s.asked, send...)
		return append(send, s.full), 0
	case s.came == 0:
		s.try = 0
		wait(s.silence)
		s.silence = min(2*s.silence, soundSeldom)
	default:
		s.try, s.silence, s.widened = 0, soundEvery, now
		wait(soundEvery)
		return nil, s.came
	}
	return nil, 0
}

// answered notes that a packet of some size came at the other end. A size that nobody asked about
// is a lie.
func (s *sounding) answered(number uint64, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.try > 0 && number == s.number && slices.Contains(s.asked, size) {
		s.came = max(s.came, size)
	}
}

// message makes a message for a packet of some size.
func (p *paths) message(kind byte, size int) []byte {
	key, _ := p.codeKeys()
	if key == nil {
		return nil
	}
	p.sounding.mu.Lock()
	number := p.sounding.number
	p.sounding.mu.Unlock()
	m := make([]byte, size-headers6)
	m[0] = kind
	binary.LittleEndian.PutUint32(m[4:], uint32(size))
	binary.LittleEndian.PutUint64(m[8:], number)
	copy(m[soundingCode:], code(key, m))
	return m
}

// code authenticates the beginning of a message.
func code(key, m []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(m[:soundingCode])
	return h.Sum(nil)[:sizeSounded-soundingCode]
}

// codeKeys returns the keys that this node shares with the peer alone, of what it sends and of what
// it receives; nil when the peer's is none.
func (p *paths) codeKeys() (out, in []byte) {
	p.codeOnce.Do(func() {
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
			p.codeOut, p.codeIn = key(private.PublicKey().Bytes()), key(p.key[:])
		}
	})
	return p.codeOut, p.codeIn
}

// sounded handles a sounding, or an answer to one. Only sources of authentic packets are listened
// to.
func (b *bind) sounded(m []byte, a *arrival) {
	p := a.owner.Load()
	if p == nil || len(m) < sizeSounded {
		return
	}
	size := int(binary.LittleEndian.Uint32(m[4:]))
	if m[0] == typeSounding && size != len(m)+headers6 || m[0] == typeSounded &&
		len(m) != sizeSounded {
		return
	}
	out, in := p.codeKeys()
	if in == nil || !hmac.Equal(code(in, m), m[soundingCode:sizeSounded]) {
		return
	}
	if m[0] == typeSounded {
		p.sounding.answered(binary.LittleEndian.Uint64(m[8:]), size)
		return
	}
	var answer [sizeSounded]byte
	copy(answer[:], m)
	answer[0] = typeSounded
	copy(answer[soundingCode:], code(out, answer[:]))
	b.sendOne(answer[:], &a.hop)
}

// sound has the paths in use sounded.
func (d *Device) sound() {
	if !d.autoMTU {
		return
	}
	now := d.bind.now()
	for _, p := range d.bind.allPaths() {
		h := p.current.Load()
		if h == nil || !h.addr.Addr().Is6() || h.addr.Addr().Is4In6() || !h.local.IsValid() ||
			!p.inUse(now) {
			continue
		}
		widest := int(d.tun.mtu.Load()) + overhead(h.addr.Addr())
		full := widest
		if n := int(p.narrow.Load()); n > 0 {
			full = n + overhead(h.addr.Addr())
		}
		if p.told.path == h.addr {
			widest = full // the kernel fragments here, so that everything comes through
		}
		send, found := p.sounding.turn(h.addr, full, widest, now)
		for _, size := range send {
			if m := p.message(typeSounding, size); m != nil {
				d.bind.sendOne(m, h)
			}
		}
		if found > 0 {
			d.resize(p, h, found)
		} else if p.told.path == h.addr && now-p.told.when > int64(retellEvery) {
			p.told.when = now
			_ = d.bind.tellSize(h, p.told.size) // has worked before
		}
	}
}

// told is what the kernel was told of a path.
type told struct {
	path netip.AddrPort
	size int
	when int64
}

// resize makes the packets to a peer as large as its path carries. Where that is less than they may
// have, it does what a router's report would have done: the kernel fragments.
func (d *Device) resize(p *paths, h *hop, size int) {
	fits := (size - overhead(h.addr.Addr())) &^ (padding - 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	was, now := int(p.narrow.Load()), max(fits, MinMTU)
	if now >= int(d.tun.mtu.Load()) {
		now = 0
	}
	known := d.peers[p.key]
	if fits < MinMTU || known == nil || known.Plain { // the routes of others are not ours
		if err := d.bind.tellSize(h, size); err != nil {
			d.log.Warn("path size", "peer", p.key.String(), "err", err)
		}
		p.told = told{h.addr, size, d.bind.now()}
	}
	if was == now {
		return
	}
	d.log.Info("the path to a peer has another size than its first link, and no router said so",
		"peer", p.key.String(), "path", h.addr.String(), "size", size)
	p.narrow.Store(int32(now))
	if known == nil {
		return
	}
	if err := d.addRoutes(known, known); err != nil { // in place
		d.log.Warn("mtu", "peer", p.key.String(), "err", err)
	}
	d.tellNarrow()
}
