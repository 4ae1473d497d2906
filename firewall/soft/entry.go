package soft

import (
	"encoding/binary"
	"time"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// entry is one state as the table holds it: 128 bytes, two cache lines. The first has the key and
// what every lookup reads, the second has the two sides, 32 bytes each.
type entry struct {
	low, high [16]byte // addresses of the ends, as packet.Packet has them
	// ports << 32 | protocol << 24 | flow id << 16 | tag << 8 | infoLoose, infoHigh, infoOut,
	// infoCounted
	id    uint64
	rule  uint32
	track uint32
	last  [2]time.Duration
	sides [2]side
}

// ends returns the addresses of a key as an entry has them.
func ends(k *flow.Key) (low, high [16]byte) {
	binary.BigEndian.PutUint64(low[:8], k.LowHi)
	binary.BigEndian.PutUint64(low[8:], k.LowLo)
	binary.BigEndian.PutUint64(high[:8], k.HighHi)
	binary.BigEndian.PutUint64(high[8:], k.HighLo)
	return low, high
}

// halves returns an address as two little-endian words, for hashing and comparing only.
func halves(ip *[16]byte) (hi, lo uint64) {
	return binary.LittleEndian.Uint64(ip[:8]), binary.LittleEndian.Uint64(ip[8:])
}

// addrWords returns an address as two big-endian numbers.
func addrWords(ip *[16]byte) (hi, lo uint64) {
	return binary.BigEndian.Uint64(ip[:8]), binary.BigEndian.Uint64(ip[8:])
}

// Bits of entry.id, and where its parts are.
const (
	infoHigh    = 1 << iota // the high end of the key made the state: it is side 0
	infoLoose               // flow.State.Loose
	infoOut                 // the packet that made the state went out
	infoCounted             // half-open, and counted for its source
	infoKeeps               // counted in its track as proved

	idTag   = 8
	idKey   = 16 // from here on it is part of the key
	idFlow  = 16
	idProto = 24
	idPorts = 32
)

// idOf returns the part of the id that belongs to the key, shifted down by idKey.
func idOf(ports uint32, proto packet.Proto, flowID uint8) uint64 {
	return uint64(ports)<<(idPorts-idKey) | uint64(proto)<<(idProto-idKey) |
		uint64(flowID)<<(idFlow-idKey)
}

// proto returns the protocol, tag the byte of the entry in the word of tags.
func (e *entry) proto() packet.Proto { return packet.Proto(e.id >> idProto) }
func (e *entry) tag() uint8          { return uint8(e.id >> idTag) }

// side is a flow.Side in 32 bytes. Bytes are counted modulo 2^56 and packets modulo 2^40: at ten
// million packets in a second the latter lasts 30 hours, and only what is shown suffers.
type side struct {
	bytes   uint64 // bytes << 8 | flags
	packets uint64 // packets << 24 | window << 8 | scaled window << 4 | scale
	numbers uint64 // start << 32 | end
	acks    uint64 // ack << 32 | edge
}

// winScaled in side.packets says that the window has to be shifted by the scale.
const winScaled = 1 << 4

// setKey makes the entry a new one with a key.
func (e *entry) setKey(k *flow.Key, tag uint8) {
	*e = entry{id: idOf(k.Ports, k.Proto, k.Flow)<<idKey | uint64(tag)<<idTag}
	e.low, e.high = ends(k)
}

// key returns the key.
func (e *entry) key() flow.Key {
	k := flow.Key{Ports: uint32(e.id >> idPorts), Proto: e.proto(), Flow: uint8(e.id >> idFlow)}
	k.LowHi, k.LowLo = addrWords(&e.low)
	k.HighHi, k.HighLo = addrWords(&e.high)
	return k
}

// is reports whether the entry has the key.
func (e *entry) is(k *flow.Key) bool {
	low, high := ends(k)
	return e.id>>idKey == idOf(k.Ports, k.Proto, k.Flow) && e.low == low && e.high == high
}

// side returns which side sends packets of direction d.
func (e *entry) side(d flow.End) int {
	return int(uint64(d)^e.id) & 1
}

// from returns the direction of side 0.
func (e *entry) from() flow.End {
	return flow.End(e.id & infoHigh)
}

// load unpacks the state.
func (e *entry) load(s *flow.State) {
	s.Proto, s.Loose = e.proto(), e.id&infoLoose != 0
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
// A window is 16 bits wide, shifted by the scale or not: a SYN's is not, so one above 16 bits is
// always a shifted one.
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
