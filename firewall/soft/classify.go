package soft

import (
	"math/bits"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
)

// classes is the classifier of a Program with the additions of this engine: tries over the IPv6
// prefixes, and rows that join several dimensions ahead of time.
type classes struct {
	program.Classifier
	vectors  [program.NumDims][]uint64 // class id * Words
	src, dst addresses
	ones     []uint64 // a row that excludes no rule

	// base names, by DimHook index << 9 | DimProto index, a row of bases. The row joins the vectors
	// of the hook and the protocol. For protocols without ports, TCP flags or ICMP types it also
	// joins those of packets that have none.
	base  [program.HookIndexes << 9]uint16
	bases []uint64
}

func newClasses(c *program.Classifier) *classes {
	k := &classes{Classifier: *c, ones: make([]uint64, c.Words)}
	for i := range k.ones {
		k.ones[i] = ^uint64(0)
	}
	for d := range k.vectors {
		k.vectors[d] = c.Vectors[d].Dense()
	}
	if c.Used[program.DimSrc] {
		k.src.fill(&c.Src)
	}
	if c.Used[program.DimDst] {
		k.dst.fill(&c.Dst)
	}
	type parts struct {
		hook, proto uint16
		kind        kind
	}
	rows := map[parts]uint16{}
	for hook := range program.HookIndexes {
		for proto := range program.ProtoIndexes {
			p := parts{c.Hook[hook], c.Proto[proto], kindOf(proto, hook >= 2)}
			row, ok := rows[p]
			if !ok {
				row = uint16(len(rows))
				rows[p] = row
				k.bases = append(k.bases, k.join(p.hook, p.proto, p.kind)...)
			}
			k.base[hook<<9|proto] = row
		}
	}
	return k
}

// kind says which dimensions of the transport header a packet has.
type kind uint8

const (
	kindNone kind = iota
	kindTCP
	kindPorts // and no flags
	kindICMP
	kindICMP6
)

// kindOf returns the kind of a DimProto index.
func kindOf(proto int, later bool) kind {
	switch {
	case later:
	case proto&255 == int(packet.ProtoTCP):
		return kindTCP
	case proto&255 == int(packet.ProtoUDP), proto&255 == int(packet.ProtoUDPLite),
		proto&255 == int(packet.ProtoSCTP):
		return kindPorts
	case proto == int(packet.ProtoICMP):
		return kindICMP
	case proto == int(packet.ProtoICMPv6)+256:
		return kindICMP6
	}
	return kindNone
}

// join returns the row of a hook, a protocol, and everything that packets of the kind do not have.
func (k *classes) join(hook, proto uint16, kd kind) []uint64 {
	row := append([]uint64(nil), k.vector(program.DimHook, uint32(hook))...)
	and := func(v []uint64) {
		for i := range row {
			row[i] &= v[i]
		}
	}
	and(k.vector(program.DimProto, uint32(proto)))
	if kd != kindTCP && kd != kindPorts {
		and(k.vector(program.DimSrcPort, uint32(k.Ports[0][program.NoPort])))
		and(k.vector(program.DimDstPort, uint32(k.Ports[1][program.NoPort])))
	}
	if kd != kindTCP {
		and(k.vector(program.DimFlags, uint32(k.Flags[program.NoFlags])))
	}
	if kd != kindICMP && kd != kindICMP6 {
		and(k.vector(program.DimICMP, uint32(k.ICMP[program.NoICMP])))
	}
	return row
}

// vector returns the vector of a class.
func (k *classes) vector(d program.Dim, class uint32) []uint64 {
	at := int(class) * k.Words
	return k.vectors[d][at : at+k.Words : at+k.Words]
}

// rows are the vectors of one packet. A bit that is set in all of them is a rule whose baked
// conditions hold.
type rows [maxRows][]uint64

// The rows. Not every packet has the last three. The row of ones stands for what a packet or
// Program lacks.
const (
	rowBase = iota
	rowSrc
	rowDst
	rowSrcPort
	rowDstPort
	rowFlags // or ICMP type
	maxRows
)

// classify finds the vectors of a packet.
func (k *classes) classify(p *packet.Packet, dir firewall.Direction, r *rows) {
	v4 := p.Version == 4
	later := p.Frag&packet.FragLater != 0
	proto, hook := int(p.Proto), int(dir)
	if later {
		hook += 2
	}
	if !v4 {
		proto += 256
	}
	w := k.Words
	at := int(k.base[hook<<9|proto]) * w
	r[rowBase] = k.bases[at : at+w]
	r[rowSrc], r[rowDst], r[rowSrcPort], r[rowDstPort], r[rowFlags] = k.ones, k.ones, k.ones,
		k.ones, k.ones
	if k.Used[program.DimSrc] {
		r[rowSrc] = k.vector(program.DimSrc, k.src.class(&p.SrcIP, v4))
	}
	if k.Used[program.DimDst] {
		r[rowDst] = k.vector(program.DimDst, k.dst.class(&p.DstIP, v4))
	}
	switch kd := kindOf(proto, later); kd {
	case kindTCP, kindPorts:
		if k.Used[program.DimSrcPort] {
			r[rowSrcPort] = k.vector(program.DimSrcPort, uint32(k.Ports[0][p.Ports>>16]))
		}
		if k.Used[program.DimDstPort] {
			r[rowDstPort] = k.vector(program.DimDstPort, uint32(k.Ports[1][p.Ports&0xffff]))
		}
		if kd == kindTCP {
			r[rowFlags] = k.vector(program.DimFlags, uint32(k.Flags[p.TCPFlags]))
		}
	case kindICMP:
		r[rowFlags] = k.vector(program.DimICMP, uint32(k.ICMP[p.ICMPType()]))
	case kindICMP6:
		r[rowFlags] = k.vector(program.DimICMP, uint32(k.ICMP[256+int(p.ICMPType())]))
	}
}

// first returns the first slot at or after from whose vectors match the packet, or end. It does the
// work of classify and next in one call.
func (k *classes) first(p *packet.Packet, dir firewall.Direction, from, end int) int {
	if k.Words != 1 {
		var r rows
		k.classify(p, dir, &r)
		return r.next(from, end)
	}
	v4 := p.Version == 4
	proto := int(p.Proto)
	if !v4 {
		proto += 256
	}
	x := k.bases[k.base[int(dir&1)<<9|proto]]
	if k.Used[program.DimSrc] {
		x &= k.vectors[program.DimSrc][k.src.class(&p.SrcIP, v4)]
	}
	if k.Used[program.DimDst] {
		x &= k.vectors[program.DimDst][k.dst.class(&p.DstIP, v4)]
	}
	switch kd := kinds[proto]; kd {
	case kindTCP, kindPorts:
		if k.Used[program.DimSrcPort] {
			x &= k.vectors[program.DimSrcPort][k.Ports[0][p.Ports>>16]]
		}
		if k.Used[program.DimDstPort] {
			x &= k.vectors[program.DimDstPort][k.Ports[1][p.Ports&0xffff]]
		}
		if kd == kindTCP {
			x &= k.vectors[program.DimFlags][k.Flags[p.TCPFlags]]
		}
	case kindICMP:
		x &= k.vectors[program.DimICMP][k.ICMP[p.ICMPType()]]
	case kindICMP6:
		x &= k.vectors[program.DimICMP][k.ICMP[256+int(p.ICMPType())]]
	}
	return min(bits.TrailingZeros64(x&(^uint64(0)<<(from&63))), end)
}

// kinds is kindOf for whole packets.
var kinds = func() (all [program.ProtoIndexes]kind) {
	for i := range all {
		all[i] = kindOf(i, false)
	}
	return all
}()

// addresses finds the class of an address.
type addresses struct {
	program.Directory
	v6       prefixes
	default6 uint32
}

func (a *addresses) fill(from *program.Addresses) {
	a.Directory, a.default6 = from.Directory(), from.Default6
	for _, p := range from.V6 {
		a.v6.set(p.Prefix, p.Class, true)
	}
}

func (a *addresses) class(ip *[16]byte, v4 bool) uint32 {
	if !v4 {
		hi, lo := addrWords(ip)
		if class, ok := a.v6.find(hi, lo, false); ok {
			return class
		}
		return a.default6
	}
	v := a.Root[uint32(ip[12])<<8|uint32(ip[13])]
	if v&program.DirBlock != 0 {
		v = a.Blocks[v&^program.DirBlock<<8|uint32(ip[14])]
		if v&program.DirBlock != 0 {
			v = a.Blocks[v&^program.DirBlock<<8|uint32(ip[15])]
		}
	}
	return v
}

// next returns the first slot at or after from whose bit is set in all rows, or end if none is
// before it.
func (r *rows) next(from, end int) int {
	if from >= end {
		return end
	}
	base := r[rowBase]
	n := len(base)
	src, dst, sport, dport, flags := r[rowSrc][:n], r[rowDst][:n], r[rowSrcPort][:n],
		r[rowDstPort][:n], r[rowFlags][:n]
	w := from >> 6
	x := ^uint64(0) << (from & 63)
	for ; w<<6 < end; w++ {
		if x &= base[w] & src[w] & dst[w]; x != 0 {
			if x &= sport[w] & dport[w] & flags[w]; x != 0 {
				return min(w<<6+bits.TrailingZeros64(x), end)
			}
		}
		x = ^uint64(0)
	}
	return end
}

// has reports whether the bit of a slot is set in all rows.
func (r *rows) has(slot int) bool {
	w := slot >> 6
	x := r[rowBase][w] & r[rowSrc][w] & r[rowDst][w] & r[rowSrcPort][w] & r[rowDstPort][w] &
		r[rowFlags][w]
	return x>>(slot&63)&1 != 0
}
