package soft

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/weirnet/weir/firewall"
)

// mapped are bytes 8 to 11 of an IPv4 address, as a little-endian word.
const mapped = 0xffff << 16

// sources counts the half-open states of each source, for all shards, in two cells that a keyed
// hash of the source names. The lower one counts: a source is taken for one with many states only
// if it shares both its cells with such sources. There are two cells for each possible half-open
// state.
type sources []uint32

func newSources(halfOpen int) sources {
	return make(sources, 1<<bits.Len(uint(max(2*halfOpen, 1024)-1)))
}

// sourceHash hashes the source of an address on a link.
func (e *Engine) sourceHash(ip *[16]byte, link uint32) uint64 {
	source := sourceOf(ip, link)
	hi, lo := halves(&source)
	if hi == 0 {
		return mix(lo^e.seed[0], e.seed[2]|1)
	}
	return mix(hi^lo^e.seed[0], e.seed[2]|1)
}

// sourceOf returns what packets from an address count for. That is all of an IPv4 address, or the
// /64 of an IPv6 one, since one host may have all addresses of a /64. All links have the same
// link-local addresses, so the source of one holds its link.
func sourceOf(ip *[16]byte, link uint32) [16]byte {
	source := *ip
	if hi, lo := halves(ip); hi == 0 && uint32(lo) == mapped {
		return source
	}
	clear(source[8:])
	if ip[0] == 0xfe && ip[1]>>6 == 2 {
		binary.LittleEndian.PutUint32(source[8:], link)
	}
	return source
}

// cells returns the two cells of a source, which differ.
func (e *Engine) cells(h uint64) (a, b *uint32) {
	mask := uint64(len(e.sources) - 1)
	first, apart := h&mask, h>>32&mask
	return &e.sources[first], &e.sources[first^max(apart, 1)]
}

// add changes a cell and returns what is there now.
func (s *shard) add(cell *uint32, n int32) uint32 {
	if s.many {
		return atomic.AddUint32(cell, uint32(n))
	}
	*cell += uint32(n)
	return *cell
}

// enterSource counts one more half-open state of a source and returns how many it had.
func (s *shard) enterSource(h uint64) uint32 {
	a, b := s.engine.cells(h)
	return min(s.add(a, 1), s.add(b, 1)) - 1
}

// leaveSource counts one less.
func (s *shard) leaveSource(h uint64) {
	a, b := s.engine.cells(h)
	s.add(a, -1)
	s.add(b, -1)
}

// ring records where the states are that sources with many half-open ones have made, in slots that
// a hash spreads over one array. A slot comes up again after a number of turns of its source and
// then names one of the oldest. The reader must check whose state that is.
type ring struct {
	slots []int32 // 1 + place in the table of half-open states
	turns [4096]uint32
	from  uint32 // sources with at least so many half-open states are recorded
	count uint32 // how many states of a source are recorded
}

// fewOfSource: if a source may have at most so many half-open states, all of them are recorded,
// else half of them.
const fewOfSource = 16

// ringTries is how many turns are tried to find a state to evict.
const ringTries = 8

// newRing returns the ring of one of so many shards.
func newRing(most, halfOpen, shards int) ring {
	r := ring{slots: make([]int32, 1<<bits.Len(uint(max(2*halfOpen/shards, 64)-1)))}
	r.count = uint32(most)
	if most > fewOfSource {
		r.count = uint32(most - most/2) // forged refuses at half of most
	}
	r.from = uint32(most) - r.count
	r.count = max(1, r.count/uint32(shards))
	return r
}

// slot returns where a turn of a source is recorded.
func (r *ring) slot(h uint64, turn uint32) *int32 {
	x := (h ^ uint64(turn%r.count)<<20) * 0x9e3779b97f4a7c15
	return &r.slots[(x^x>>29)>>16&uint64(len(r.slots)-1)]
}

// next returns the next turn of a source with many states.
func (r *ring) next(h uint64) uint32 {
	t := &r.turns[h>>20&4095]
	*t++
	return *t - 1
}

// evictOfSource makes space for one more half-open state of a source that has as many as it may: it
// evicts one of the source's oldest. If it finds none in this shard, it evicts as if the table of
// half-open states were full. The new state is made in any case.
func (j *job) evictOfSource(h uint64, turn uint32) {
	s := j.sh
	for i := range uint32(ringTries) {
		r := ref(*s.ring.slot(h, turn+i)) - 1
		if r < 0 || s.halfOpen.tags[r/ways]>>(8*(uint(r)%ways))&0xff == 0 {
			continue
		}
		e := &s.halfOpen.entries[r]
		if e.id&infoCounted != 0 && s.engine.originatorHash(e) == h {
			s.end(&s.halfOpen, r, j.now)
			return
		}
	}
	s.evict(&s.halfOpen, j.hash, j.now)
}

// forged reports whether the packet comes in from an address of the host itself, which an attacker
// may have forged. From that address there must be at least half as many half-open states as
// another source may have.
func (j *job) forged(had uint32) bool {
	most := uint32(j.sh.engine.opts.MaxPerSource)
	return most > 0 && had >= most/2 && j.in.Hook.Dir == firewall.In &&
		j.cfg.host.isMe(&j.p.SrcIP, j.p.Version)
}

// wouldBeForged is forged for the packet of a dry run, in which states would have ended or begun.
func (j *job) wouldBeForged() bool {
	a, b := j.sh.engine.cells(j.sourceHash())
	return j.forged(uint32(max(0, int(min(j.sh.add(a, 0), j.sh.add(b, 0)))+j.dry.halfOpen)))
}

// wouldPromote records in a dry run that promoted would be called.
func (j *job) wouldPromote(e *entry) {
	a, _ := j.sh.engine.cells(j.sh.engine.originatorHash(e))
	if b, _ := j.sh.engine.cells(j.sourceHash()); e.id&infoCounted != 0 && a == b {
		j.dry.halfOpen--
	}
}

// promoted records that the state of an entry is no longer half-open, or ends.
func (s *shard) promoted(e *entry) {
	if e.id&infoCounted == 0 {
		return
	}
	e.id &^= infoCounted
	s.leaveSource(s.engine.originatorHash(e))
}

// originatorHash hashes the source of the end that made a state.
func (e *Engine) originatorHash(x *entry) uint64 {
	ip := &x.low
	if x.id&infoHigh != 0 {
		ip = &x.high
	}
	if ip[0] == 0xfe && ip[1] == 0x80 { // with its link
		k := x.key()
		from, _ := k.Ends(x.from())
		address := from.Addr().As16()
		return e.sourceHash(&address, k.Link())
	}
	return e.sourceHash(ip, 0)
}

// sourceHash hashes the source of the packet.
func (j *job) sourceHash() uint64 {
	return j.sh.engine.sourceHash(&j.p.SrcIP, j.in.Hook.Link())
}
