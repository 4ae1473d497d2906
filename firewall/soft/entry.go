package soft

import (
	"github.com/weirnet/weir/flow"
)

// entry is one state as the table holds it: 128 bytes, two cache lines. The first has the key and what every look-up
// reads, the second has the two sides, 32 bytes each.
type entry struct {
	lowHi, lowLo, highHi, highLo uint64
	ports                        uint32
	proto, flow                  uint8
	info                         uint8 // infoLoose, infoHigh, infoOut
	tag                          uint8 // what the tag line says, kept for removal
	rule                         uint32
	track                        uint32
	last                         [2]int64
	sides                        [2]side
}

// Bits of entry.info.
const (
	infoLoose uint8 = 1 << iota // flow.State.Loose
	infoHigh                    // the high end of the key made the state: it is side 0
	infoOut                     // the packet that made the state was judged out
)

// side is a flow.Side in 32 bytes. Bytes are counted modulo 2^56 and packets modulo 2^40: at ten million packets in a second the
// latter lasts 30 hours, and only what is shown suffers.
type side struct {
	bytes   uint64 // bytes << 8 | flags
	packets uint64 // packets << 24 | window << 8 | scaled window << 4 | scale
	numbers uint64 // start << 32 | end
	acks    uint64 // ack << 32 | edge
}

// winScaled in side.packets says that the window has to be shifted by the scale.
const winScaled = 1 << 4

// setKey writes the key.
func (e *entry) setKey(k *flow.Key) {
	e.lowHi, e.lowLo, e.highHi, e.highLo = k.LowHi, k.LowLo, k.HighHi, k.HighLo
	e.ports, e.proto, e.flow = k.Ports, k.Proto, k.Flow
}

// key returns the key.
func (e *entry) key() flow.Key {
	return flow.Key{LowHi: e.lowHi, LowLo: e.lowLo, HighHi: e.highHi, HighLo: e.highLo, Ports: e.ports, Proto: e.proto, Flow: e.flow}
}

// is reports whether the entry has the key.
func (e *entry) is(k *flow.Key) bool {
	return e.lowLo == k.LowLo && e.highLo == k.HighLo && e.ports == k.Ports && e.lowHi == k.LowHi && e.highHi == k.HighHi &&
		e.proto == k.Proto && e.flow == k.Flow
}

// side returns which side sends packets of direction d.
func (e *entry) side(d flow.Dir) int {
	if e.info&infoHigh != 0 {
		return int(d ^ 1)
	}
	return int(d)
}

// from returns the direction of side 0.
func (e *entry) from() flow.Dir {
	if e.info&infoHigh != 0 {
		return flow.FromHigh
	}
	return flow.FromLow
}

// load unpacks the state.
func (e *entry) load(s *flow.State) {
	s.Proto, s.Loose = e.proto, e.info&infoLoose != 0
	e.loadSide(&s.Sides[0], 0)
	e.loadSide(&s.Sides[1], 1)
}

func (e *entry) loadSide(to *flow.Side, i int) {
	s := &e.sides[i]
	to.Last = e.last[i]
	to.Bytes, to.Flags = s.bytes>>8, flow.SideFlags(s.bytes)
	to.Packets, to.Scale = s.packets>>24, uint8(s.packets&15)
	to.Win = uint32(s.packets >> 8 & 0xffff)
	if s.packets&winScaled != 0 {
		to.Win <<= to.Scale
	}
	to.Start, to.End = uint32(s.numbers>>32), uint32(s.numbers)
	to.Ack, to.Edge = uint32(s.acks>>32), uint32(s.acks)
}

// storeSide packs side i. Only a step by a packet of that side changes it.
//
// A window is 16 bits wide, shifted by the scale or not: a SYN's is not, so one above 16 bits is always a shifted one.
func (e *entry) storeSide(from *flow.Side, i int) {
	win, scale := uint64(from.Win), uint64(from.Scale)
	if win > 0xffff {
		win = win>>scale<<8 | winScaled
	} else {
		win <<= 8
	}
	e.last[i] = from.Last
	e.sides[i] = side{
		bytes:   from.Bytes<<8 | uint64(from.Flags),
		packets: from.Packets<<24 | win | scale,
		numbers: uint64(from.Start)<<32 | uint64(from.End),
		acks:    uint64(from.Ack)<<32 | uint64(from.Edge),
	}
}

// store packs the whole state.
func (e *entry) store(s *flow.State) {
	e.info &^= infoLoose
	if s.Loose {
		e.info |= infoLoose
	}
	e.storeSide(&s.Sides[0], 0)
	e.storeSide(&s.Sides[1], 1)
}
