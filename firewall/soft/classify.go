package soft

import (
	"math/bits"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// classes is the classifier of a Program with what the soft engine adds: a trie over the IPv6 prefixes.
type classes struct {
	*rule.Classifier
	src, dst prefixes // IPv6 only
}

func newClasses(c *rule.Classifier) classes {
	k := classes{Classifier: c}
	for _, p := range c.Src.V6 {
		k.src.set(p.Prefix, p.Class, true)
	}
	for _, p := range c.Dst.V6 {
		k.dst.set(p.Prefix, p.Class, true)
	}
	return k
}

// rows are the vectors of one packet, one per dimension.
type rows [rule.NumDims][]uint64

// classify finds the vectors of a packet.
func (c *classes) classify(p *packet.Packet, dir firewall.Direction, r *rows) {
	four := p.Version == 4
	later := p.Frag&packet.FragLater != 0
	var class [rule.NumDims]uint32
	class[rule.DimSrc] = address(&c.Src, &c.src, p.SrcHi, p.SrcLo, four)
	class[rule.DimDst] = address(&c.Dst, &c.dst, p.DstHi, p.DstLo, four)
	sport, dport := uint32(rule.NoPort), uint32(rule.NoPort)
	flags, icmp := uint32(rule.NoFlags), uint32(rule.NoICMP)
	proto, hook := uint32(p.Proto), uint32(dir)
	if later {
		hook += 2
	}
	if !four {
		proto += 256
	}
	switch {
	case p.HasPorts():
		sport, dport = p.Ports>>16, p.Ports&0xffff
		if p.Proto == packet.ProtoTCP {
			flags = uint32(p.TCPFlags)
		}
	case p.IsICMP():
		icmp = uint32(p.ICMPType)
		if !four {
			icmp += 256
		}
	}
	class[rule.DimSrcPort] = uint32(c.Ports[0][sport])
	class[rule.DimDstPort] = uint32(c.Ports[1][dport])
	class[rule.DimProto] = uint32(c.Proto[proto])
	class[rule.DimFlags] = uint32(c.Flags[flags])
	class[rule.DimICMP] = uint32(c.ICMP[icmp])
	class[rule.DimHook] = uint32(c.Hook[hook])
	for d := range r {
		at := int(class[d]) * c.Words
		r[d] = c.Vectors[d][at : at+c.Words]
	}
}

// address returns the class of an address.
func address(a *rule.Addresses, six *prefixes, hi, lo uint64, four bool) uint32 {
	if !four {
		if class, ok := six.find(hi, lo, false); ok {
			return class
		}
		return a.Default6
	}
	v := a.Root[uint32(lo)>>16]
	if v&rule.DirBlock != 0 {
		v = a.Blocks[v&^rule.DirBlock<<8|uint32(lo)>>8&0xff]
		if v&rule.DirBlock != 0 {
			v = a.Blocks[v&^rule.DirBlock<<8|uint32(lo)&0xff]
		}
	}
	return v
}

// next returns the first slot at or after from whose bit is set in all rows, or end if none is before it.
func (r *rows) next(from, end int) int {
	for w := from >> 6; w<<6 < end; w++ {
		x := r[0][w] & r[1][w] & r[2][w] & r[3][w] & r[4][w] & r[5][w] & r[6][w] & r[7][w]
		if w == from>>6 {
			x &= ^uint64(0) << (from & 63)
		}
		if x != 0 {
			return min(w<<6+bits.TrailingZeros64(x), end)
		}
	}
	return end
}

// has reports whether the bit of a slot is set in all rows.
func (r *rows) has(slot int) bool { return r.next(slot, slot+1) == slot }
