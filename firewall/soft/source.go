package soft

import (
	"math/bits"
	"sync/atomic"

	"github.com/weirnet/weir/firewall"
)

// mapped are bytes 8 to 11 of an IPv4 address, as a little-endian word.
const mapped = 0xffff << 16

// sources counts the half-open states of each source, for all shards, in two cells that a keyed
// hash of the source names. The lower one counts: a source is taken for one of many states only if
// both its cells are shared with such. There are two cells for each half-open state that there may
// be.
type sources []uint32

func newSources(halfOpen int) sources {
	return make(sources, 1<<bits.Len(uint(max(2*halfOpen, 1024)-1)))
}

// sourceHash hashes a source: all of an IPv4 address, the first 64 bits of an IPv6 one, of which
// one host has all that follow.
func (e *Engine) sourceHash(ip *[16]byte) uint64 {
	hi, lo := halves(ip)
	if hi == 0 && uint32(lo) == mapped {
		hi = lo
	}
	return mix(hi^e.seed[0], e.seed[2]|1)
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

// ring remembers where the states are that sources with many half-open ones have made, in slots
// that a hash spreads over one array. A slot comes up again after a number of turns of its source,
// and names one of the oldest then. Whoever reads it looks whose that is.
type ring struct {
	slots []int32 // 1 + place in the table of half-open states
	turns [4096]uint32
	from  uint32 // from how many half-open states on what a source makes is remembered
	count uint32 // how many of these
}

// fewOfSource is up to how many half-open states of one source all of them are remembered, of
// larger numbers half.
const fewOfSource = 16

// ringLooks is how many turns are tried for a state that gives way.
const ringLooks = 8

// newRing returns the ring of one of so many shards.
func newRing(most, halfOpen, shards int) ring {
	r := ring{slots: make([]int32, 1<<bits.Len(uint(max(2*halfOpen/shards, 64)-1)))}
	r.count = uint32(most)
	if most > fewOfSource {
		r.count = uint32(most / 2)
	}
	r.from = uint32(most) - r.count
	r.count = max(1, r.count/uint32(shards))
	return r
}

// slot returns where a turn of a source is remembered.
func (r *ring) slot(h uint64, turn uint32) *int32 {
	x := (h ^ uint64(turn%r.count)<<20) * 0x9e3779b97f4a7c15
	return &r.slots[(x^x>>29)>>16&uint64(len(r.slots)-1)]
}

// next counts what a source with many states makes.
func (r *ring) next(h uint64) uint32 {
	t := &r.turns[h>>20&4095]
	*t++
	return *t - 1
}

// makeWay makes room for one more half-open state of a source that has as many as it may: one of
// its own goes, one of the oldest. If none is found in this shard the newcomer competes as if all
// half-open states had taken their room, and it is made in any case.
func (j *job) makeWay(h uint64, turn uint32) {
	s := j.sh
	for i := range uint32(ringLooks) {
		r := ref(*s.ring.slot(h, turn+i)) - 1
		if r < 0 || s.embryo.tags[r/ways]>>(8*(uint(r)%ways))&0xff == 0 {
			continue
		}
		e := &s.embryo.entries[r]
		if maker := e.maker(); e.id&infoCounted != 0 && s.engine.sourceHash(&maker) == h {
			s.end(&s.embryo, r, j.now)
			return
		}
	}
	s.evict(&s.embryo, j.hash, j.now)
}

// forged reports that the packet comes in from an address of the host itself, which anybody may
// have forged, and that there are half as many such half-open states as others may have.
func (j *job) forged(had uint32) bool {
	most := uint32(j.sh.engine.opts.MaxPerSource)
	return most > 0 && had >= most/2 && j.in.Hook.Dir == firewall.In &&
		j.cfg.host.isMe(bigWords(&j.p.SrcIP))
}

// wouldBeForged is forged for the packet of a dry run, in which states would have ended or begun.
func (j *job) wouldBeForged() bool {
	a, b := j.sh.engine.cells(j.sh.engine.sourceHash(&j.p.SrcIP))
	return j.forged(uint32(max(0, int(min(j.sh.add(a, 0), j.sh.add(b, 0)))+j.dry.halfOpen)))
}

// wouldHatch notes in a dry run that hatched would be called.
func (j *job) wouldHatch(e *entry) {
	maker := e.maker()
	a, _ := j.sh.engine.cells(j.sh.engine.sourceHash(&maker))
	if b, _ := j.sh.engine.cells(j.sh.engine.sourceHash(&j.p.SrcIP)); e.id&infoCounted != 0 &&
		a == b {
		j.dry.halfOpen--
	}
}

// hatched notes that the state of an entry is half-open no longer, or is going.
func (s *shard) hatched(e *entry) {
	if e.id&infoCounted == 0 {
		return
	}
	e.id &^= infoCounted
	maker := e.maker()
	s.leaveSource(s.engine.sourceHash(&maker))
}

// maker returns the address of the end that made the state.
func (e *entry) maker() [16]byte {
	ip := e.low
	if e.id&infoHigh != 0 {
		ip = e.high
	}
	if ip[0] == 0xfe && ip[1] == 0x80 { // with its link
		k := e.key()
		from, _ := k.Ends(e.from())
		return from.Addr().As16()
	}
	return ip
}
