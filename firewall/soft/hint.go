package soft

import (
	"math/bits"

	"github.com/weirnet/weir/packet"
)

// A hint is where the state of a flow was when it was found last. Its place is named by a hash that
// is cheap and not secret. An attacker who aims at it makes packets cost a look-up, which each one
// would cost without hints. It needs no upkeep: an entry that was freed, or has another flow's
// state, does not have the packet's key. With more states than prefetchStates there are none: they
// would lead to lines that are in no cache.
const hints = 1 << hintBits

const hintBits = 12

// hintOf returns the place of a packet's hint. Both directions of a flow have their own.
func hintOf(p *packet.Packet) uint64 {
	_, src := halves(&p.SrcIP)
	_, dst := halves(&p.DstIP)
	return (src ^ bits.RotateLeft64(dst, 24) ^ uint64(p.Ports)) * 0x9e3779b97f4a7c15 >>
		(64 - hintBits)
}

// confirm returns e and the side that sent an unfragmented TCP or UDP packet. It does so if e is
// the state of the packet's flow under the flow name that the first rule looks up; else nil.
func (s *shard) confirm(e *entry, p *packet.Packet) (_ *entry, from uint64) {
	if e == nil {
		return nil, 0
	}
	conv := uint64(p.Proto)<<(idProto-idKey) | uint64(s.cfg.firstFlow)
	id := uint64(p.Ports)<<(idPorts-idKey) | conv
	if e.id>>idKey == id && e.low == p.SrcIP && e.high == p.DstIP {
		return e, e.id & 1
	}
	back := uint64(bits.RotateLeft32(p.Ports, 16))<<(idPorts-idKey) | conv
	if e.id>>idKey == back && e.low == p.DstIP && e.high == p.SrcIP {
		return e, e.id&1 ^ 1
	}
	return nil, 0
}
