package overlay

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"
)

// Soundings find out what a path over IPv6 carries. Routers do not fragment there; one that swallows what is too large and says nothing
// lets small packets through and large ones vanish. A node therefore sends datagrams as large as its largest packets, and the other end says
// which came. Any other WireGuard ignores them, as it does all messages of unknown types; then nothing is known, and nothing is changed.
//
// Both messages begin alike:
//
//	type (1 byte)  zero (3)  size of the sounding (4)  number (8)  code (16)
//
// The code authenticates what is before it by a key that both ends compute from their static keys. Filler follows in a sounding. The answer
// is never larger than what it answers.
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
	// soundGap is how long an answer may take before the next try; an answer to an earlier one counts, too.
	soundGap = 300 * time.Millisecond
	// soundTries is how often the full size is tried. A path that loses a tenth of all datagrams either way is misjudged once in 20,000 soundings.
	soundTries = 6
	// retellEvery is how often the kernel is told of a path on which it has to fragment: it forgets, after ten minutes as a rule.
	retellEvery = time.Second
)

// headers6 is what UDP and IPv6 add to a datagram.
const headers6 = 40 + 8

// depths are sizes of IPv6 packets that links and tunnels have, beside the largest one of ours. The first has to pass everywhere.
var depths = [...]int{1280, 1360, 1400, 1420, 1440, 1452, 1460, 1472, 1480, 1492}

// sounding is what is known of the size of the current path of a peer.
type sounding struct {
	mu      sync.Mutex
	path    netip.AddrPort
	try     int // 0 when none is under way
	due     int64
	number  uint64
	full    int // size of the largest packet that was asked about
	came    int // size of the largest that was answered; 0 for none
	silence time.Duration
}

// turn is called over and over. It returns the sizes of the packets to send now, or the size that a path turned out to have: less than full.
func (s *sounding) turn(path netip.AddrPort, full int, now int64) (send []int, found int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path != path {
		s.path, s.try, s.due, s.silence = path, 0, now, soundEvery
	}
	wait := func(d time.Duration) { s.due = now + int64(d) }
	switch {
	case s.try > 0 && s.came == s.full:
		s.try, s.silence = 0, soundEvery
		wait(soundEvery)
	case now < s.due:
	case s.try == 0:
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		s.try, s.full, s.came, s.number = 1, full, 0, binary.NativeEndian.Uint64(b[:])
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
		return append(send, s.full), 0
	case s.came == 0:
		s.try = 0
		wait(s.silence)
		s.silence = min(2*s.silence, soundSeldom)
	default:
		s.try, s.silence = 0, soundEvery
		wait(soundEvery)
		return nil, s.came
	}
	return nil, 0
}

// answered notes that a packet of some size came at the other end.
func (s *sounding) answered(number uint64, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.try > 0 && number == s.number {
		s.came = max(s.came, size)
	}
}

// message makes a message for a packet of some size.
func (p *paths) message(kind byte, size int) []byte {
	key := p.codeKey()
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

// codeKey returns the key that this node shares with the peer alone; nil when the peer's is none.
func (p *paths) codeKey() []byte {
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
			sum := sha256.Sum256(append([]byte("weir sounding 1"), secret...))
			p.code = sum[:]
		}
	})
	return p.code
}

// sounded handles a sounding, or an answer to one. Only sources of authentic packets are listened to.
func (b *bind) sounded(m []byte, a *arrival) {
	p := a.owner.Load()
	if p == nil || len(m) < sizeSounded {
		return
	}
	size := int(binary.LittleEndian.Uint32(m[4:]))
	if m[0] == typeSounding && size != len(m)+headers6 || m[0] == typeSounded && len(m) != sizeSounded {
		return
	}
	key := p.codeKey()
	if key == nil || !hmac.Equal(code(key, m), m[soundingCode:sizeSounded]) {
		return
	}
	if m[0] == typeSounded {
		p.sounding.answered(binary.LittleEndian.Uint64(m[8:]), size)
		return
	}
	var answer [sizeSounded]byte
	copy(answer[:], m)
	answer[0] = typeSounded
	copy(answer[soundingCode:], code(key, answer[:]))
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
		if h == nil || !h.addr.Addr().Is6() || h.addr.Addr().Is4In6() || !h.local.IsValid() || !p.inUse(now) {
			continue
		}
		send, found := p.sounding.turn(h.addr, int(d.tun.mtu.Load())+overhead(h.addr.Addr()), now)
		for _, size := range send {
			if m := p.message(typeSounding, size); m != nil {
				d.bind.sendOne(m, h)
			}
		}
		if found > 0 {
			d.narrow(p, h, found)
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

// narrow does what a router's report would have done: the kernel fragments what is too large for the path. And it makes the interface's packets
// so small that there is nothing to fragment, if they may be.
func (d *Device) narrow(p *paths, h *hop, size int) {
	d.log.Info("path carries less than its first link, and no router said so", "peer", p.key.String(), "path", h.addr.String(), "size", size)
	if err := d.bind.tellSize(h, size); err != nil {
		d.log.Warn("path size", "peer", p.key.String(), "error", err)
	}
	if size-overhead(h.addr.Addr()) < MinMTU {
		p.told = told{h.addr, size, d.bind.now()}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if err := d.lowerMTU(size - overhead(h.addr.Addr())); err != nil {
		d.log.Warn("mtu", "peer", p.key.String(), "error", err)
	}
}
