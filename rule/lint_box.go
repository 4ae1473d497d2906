package rule

import (
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
)

// Lint reasons about sets of packets as boxes: products of one set per dimension. It has more
// dimensions than the classifier: every field of a packet that is one number and that only this
// packet decides.
const (
	lintTTL   = program.NumDims + iota // TTL or hop limit
	lintLen                            // IP length
	lintID                             // identification, or 65536 for IPv6
	lintTOS                            // type of service, or traffic class + 256 for IPv6
	lintIPOpt                          // bits of IPv4 options, or 16 for IPv6
	lintFrag                           // FragBits
	lintWin                            // TCP window, or 65536
	lintSeq                            // TCP sequence number, or 2^32
	lintAck                            // TCP acknowledgement, or 2^32
	lintDims
)

// box is the packets whose value in every dimension is in that dimension's set; nil is the whole
// dimension, empty means no packet.
type box [lintDims]spans

// lintRange is the whole of each dimension.
var lintRange = [lintDims]span{
	program.DimSrc: dimRange[program.DimSrc], program.DimDst: dimRange[program.DimDst],
	program.DimSrcPort: dimRange[program.DimSrcPort],
	program.DimDstPort: dimRange[program.DimDstPort],
	program.DimProto:   dimRange[program.DimProto], program.DimFlags: dimRange[program.DimFlags],
	program.DimICMP: dimRange[program.DimICMP],
	program.DimHook: dimRange[program.DimHook],
	lintTTL:         indexSpan(0, 255), lintLen: indexSpan(0, 65535), lintID: indexSpan(0, 65536),
	lintTOS:   indexSpan(0, 511),
	lintIPOpt: indexSpan(0, 16), lintFrag: indexSpan(0, 15), lintWin: indexSpan(0, 65536),
	lintSeq: {key{}, key{0, 1 << 32}}, lintAck: {key{}, key{0, 1 << 32}},
}

// lintDim returns the dimension that decides the test, or lintDims.
func (t *Test) lintDim() program.Dim {
	if dim := t.dim(); dim != noDim {
		return dim
	}
	switch t.Op {
	case op.CondTTL:
		return lintTTL
	case op.CondLen:
		return lintLen
	case op.CondID:
		return lintID
	case op.CondTOS, op.CondDSCP, op.CondPrecedence:
		return lintTOS
	case op.CondIPOptions:
		return lintIPOpt
	case op.CondFrag:
		return lintFrag
	case op.CondWin:
		return lintWin
	case op.CondSeq:
		return lintSeq
	case op.CondAck:
		return lintAck
	}
	return lintDims
}

// lintSpans returns the values of dim for which the test is true.
func (t *Test) lintSpans(dim program.Dim) spans {
	if dim < program.NumDims {
		return t.spans(dim)
	}
	var s spans
	switch t.Op {
	case op.CondTTL, op.CondLen, op.CondID, op.CondWin:
		s = rangeSpans(t.Ranges, 0)
	case op.CondSeq, op.CondAck:
		s = spans{indexSpan(t.A, t.A)}
	case op.CondIPOptions, op.CondFrag:
		s = valueSpans(16, func(v uint32) bool { return v&t.B == t.A })
	case op.CondTOS:
		s = valueSpans(256, func(v uint32) bool { return v&t.B == t.A })
	case op.CondPrecedence:
		s = valueSpans(256, func(v uint32) bool { return v>>5 == t.A })
	case op.CondDSCP:
		mask := uint64(t.A) | uint64(t.B)<<32
		s = valueSpans(512, func(v uint32) bool { return mask>>(v&0xff>>2)&1 == 1 })
	}
	if t.Not {
		return complement(s, lintRange[dim])
	}
	return s
}

// valueSpans returns the numbers below n for which match is true.
func valueSpans(n uint32, match func(uint32) bool) spans {
	var out spans
	for v := range n {
		if match(v) {
			out = append(out, indexSpan(v, v))
		}
	}
	return union(out)
}

// packetKinds are the boxes that together hold every packet there can be: which fields there are
// depends on family, protocol and fragmentation. No two have a packet in common.
func packetKinds() []box {
	only := func(n ...uint32) spans {
		var s spans
		for _, v := range n {
			s = append(s, indexSpan(v, v))
		}
		return union(s)
	}
	none := spans{{key{0, 1 << 32}, key{0, 1 << 32}}} // of sequence and acknowledgement numbers
	ports := spans{indexSpan(0, 65535)}
	var kinds []box
	for _, family := range []struct {
		addrs            spans
		proto            uint32 // first protocol index
		icmp, icmpProto  uint32 // first ICMP index, protocol index of ICMP
		id, tos, options spans
		// fragment bits of whole packets and first fragments, of later fragments
		first, later spans
	}{
		{
			spans{mapped}, 0, 0, 1, spans{indexSpan(0, 65535)}, spans{indexSpan(0, 255)},
			spans{indexSpan(0, 15)},
			valueSpans(16, func(v uint32) bool {
				return v&op.FragOffset == 0
			}), valueSpans(16, func(v uint32) bool { return v&op.FragOffset != 0 }),
		},
		{
			complement(spans{mapped}, allAddresses), 256, 256, 256 + 58, only(65536),
			spans{indexSpan(256, 511)}, only(16),
			only(0, op.FragMF), only(op.FragOffset, op.FragOffset|op.FragMF),
		},
	} {
		base := box{
			program.DimSrc: family.addrs, program.DimDst: family.addrs, lintID: family.id,
			lintTOS:            family.tos,
			lintIPOpt:          family.options,
			program.DimSrcPort: only(program.NoPort), program.DimDstPort: only(program.NoPort),
			program.DimFlags: only(program.NoFlags),
			program.DimICMP:  only(program.NoICMP),
			lintWin:          only(65536), lintSeq: none, lintAck: none,
		}
		all := spans{indexSpan(family.proto, family.proto+255)}

		later := base
		later[program.DimProto], later[program.DimHook], later[lintFrag] = all, only(2, 3),
			family.later
		base[program.DimHook], base[lintFrag] = only(0, 1), family.first

		tcp := base
		tcp[program.DimProto], tcp[program.DimSrcPort], tcp[program.DimDstPort] = only(family.proto+
			6), ports, ports
		tcp[program.DimFlags], tcp[lintWin] = spans{indexSpan(0, 255)}, spans{indexSpan(0, 65535)}
		tcp[lintSeq], tcp[lintAck] = spans{indexSpan(0, 1<<32-1)}, spans{indexSpan(0, 1<<32-1)}

		udp := base
		udp[program.DimProto], udp[program.DimSrcPort], udp[program.DimDstPort] = only(family.proto+
			17, family.proto+132,
			family.proto+136), ports, ports

		icmp := base
		icmp[program.DimProto], icmp[program.DimICMP] = only(family.icmpProto),
			spans{indexSpan(family.icmp, family.icmp+255)}

		other := base
		named := union(append(append(append(spans{}, tcp[program.DimProto]...),
			udp[program.DimProto]...),
			icmp[program.DimProto]...))
		other[program.DimProto] = intersect(all, complement(named, dimRange[program.DimProto]))
		kinds = append(kinds, later, tcp, udp, icmp, other)
	}
	return kinds
}

// and returns what two boxes have in common; false if that is nothing.
func (b *box) and(o *box) (box, bool) {
	out := *b
	for dim := range out {
		switch {
		case o[dim] == nil:
		case b[dim] == nil:
			out[dim] = o[dim]
		default:
			if out[dim] = intersect(b[dim], o[dim]); len(out[dim]) == 0 {
				return out, false
			}
		}
	}
	return out, true
}

// size is how much memory the box takes, in spans: what it holds, and about as much as 16 of them
// for itself.
func (b *box) size() int {
	n := 16
	for _, s := range b {
		n += len(s)
	}
	return n
}

// meets reports whether two boxes have a packet in common.
func (b *box) meets(o *box) bool {
	for dim := range b {
		if b[dim] != nil && o[dim] != nil && !overlap(b[dim], o[dim]) {
			return false
		}
	}
	return true
}

func overlap(a, b spans) bool {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i].hi.compare(b[j].lo) < 0:
			i++
		case b[j].hi.compare(a[i].lo) < 0:
			j++
		default:
			return true
		}
	}
	return false
}

// minus appends to out the boxes that hold what b has and o has not. They have no packet in common.
func (b *box) minus(o *box, out []box) []box {
	rest := *b
	for dim := range program.Dim(lintDims) {
		if o[dim] == nil {
			continue
		}
		have := rest[dim]
		if have == nil {
			have = spans{lintRange[dim]}
		}
		inside := intersect(have, o[dim])
		if outside := intersect(have, complement(o[dim], lintRange[dim])); len(outside) > 0 {
			piece := rest
			piece[dim] = outside
			out = append(out, piece)
		}
		if len(inside) == 0 {
			return out
		}
		rest[dim] = inside
	}
	return out
}
