package soft

import "sync/atomic"

// sourceCells is how many counters there are for the half-open states of sources.
const sourceCells = 1 << 14

// mapped are bytes 8 to 11 of an IPv4 address, as a little-endian word.
const mapped = 0xffff << 16

// sources counts the half-open states of each source, for all shards, in two cells that a keyed hash of the source names. The lower one
// counts: a source is taken for one of many states only if both its cells are shared with such.
type sources [sourceCells]uint32

// cells returns the two cells of a source, which differ: all of an IPv4 address, the first 64 bits of an IPv6 one, of which one host has all that
// follow.
func (e *Engine) cells(ip *[16]byte) (a, b *uint32) {
	hi, lo := halves(ip)
	if hi == 0 && uint32(lo) == mapped {
		hi = lo
	}
	h := mix(hi^e.seed[0], e.seed[2]|1)
	first := h % sourceCells
	return &e.sources[first], &e.sources[first^(1+h>>32%(sourceCells-1))]
}

// add changes a cell and returns what is there now.
func (s *shard) add(cell *uint32, n int32) uint32 {
	if s.many {
		return atomic.AddUint32(cell, uint32(n))
	}
	*cell += uint32(n)
	return *cell
}

// enterSource counts one more half-open state of a source. It reports false, with nothing counted, if that has as many as it may.
func (s *shard) enterSource(ip *[16]byte) bool {
	a, b := s.engine.cells(ip)
	most := uint32(s.engine.opts.MaxPerSource)
	if n := min(s.add(a, 1), s.add(b, 1)); n <= most || most == 0 {
		return true
	}
	s.add(a, -1)
	s.add(b, -1)
	return false
}

// leaveSource counts one less.
func (s *shard) leaveSource(ip *[16]byte) {
	a, b := s.engine.cells(ip)
	s.add(a, -1)
	s.add(b, -1)
}

// crowded reports whether enterSource would refuse for the packet of a dry run, in which states would have ended or begun.
func (j *job) crowded() bool {
	a, b := j.sh.engine.cells(&j.p.SrcIP)
	most := j.sh.engine.opts.MaxPerSource
	return most > 0 && int(min(j.sh.add(a, 0), j.sh.add(b, 0)))+j.dry.halfOpen >= most
}

// wouldHatch notes in a dry run that hatched would be called.
func (j *job) wouldHatch(e *entry) {
	maker := e.maker()
	a, _ := j.sh.engine.cells(&maker)
	if b, _ := j.sh.engine.cells(&j.p.SrcIP); e.id&infoCounted != 0 && a == b {
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
	s.leaveSource(&maker)
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
