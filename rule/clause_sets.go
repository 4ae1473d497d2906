package rule

import (
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
)

// A clause whose tests all lie in one dimension is baked: it becomes the set of that dimension's
// keys for which it is true. The set is equivalent to the clause, also for packets without a value
// in the dimension, which have a key of their own. So nothing of the clause remains to be tested.

// noDim is the dimension of tests that the classifier cannot decide.
const noDim = program.NumDims

// dimRange is the whole of each dimension.
var dimRange = [program.NumDims]span{
	program.DimSrc:     allAddresses,
	program.DimDst:     allAddresses,
	program.DimSrcPort: indexSpan(0, program.PortIndexes-1),
	program.DimDstPort: indexSpan(0, program.PortIndexes-1),
	program.DimProto:   indexSpan(0, program.ProtoIndexes-1),
	program.DimFlags:   indexSpan(0, program.FlagIndexes-1),
	program.DimICMP:    indexSpan(0, program.ICMPIndexes-1),
	program.DimHook:    indexSpan(0, program.HookIndexes-1),
}

// dim returns the dimension that decides the test alone, or noDim.
func (t *Test) dim() program.Dim {
	switch t.Op {
	case op.CondSrcIn:
		return program.DimSrc
	case op.CondDstIn:
		return program.DimDst
	case op.CondSrcPort:
		return program.DimSrcPort
	case op.CondDstPort:
		return program.DimDstPort
	case op.CondVersion, op.CondProto:
		return program.DimProto
	case op.CondFlags, op.CondEstab:
		return program.DimFlags
	case op.CondICMPType, op.CondICMP6Type:
		return program.DimICMP
	case op.CondIn, op.CondOut:
		return program.DimHook
	case op.CondFrag:
		if t.A == op.FragOffset && t.B == op.FragOffset {
			return program.DimHook
		}
	}
	return noDim
}

// dim returns the dimension that decides the clause alone, or noDim.
func (c Clause) dim() program.Dim {
	dim := c[0].dim()
	for i := range c[1:] {
		if c[i+1].dim() != dim {
			return noDim
		}
	}
	return dim
}

// spans returns the keys of dim for which the clause is true.
func (c Clause) spans(dim program.Dim) spans {
	if len(c) == 1 {
		return c[0].spans(dim)
	}
	var all spans
	for i := range c {
		all = append(all, c[i].spans(dim)...)
	}
	return union(all)
}

// spans returns the keys of dim for which the test is true, negation included.
func (t *Test) spans(dim program.Dim) spans {
	s := t.positive()
	if t.Not {
		return complement(s, dimRange[dim])
	}
	return s
}

func (t *Test) positive() spans {
	switch t.Op {
	case op.CondSrcIn, op.CondDstIn:
		return prefixes(t.Prefixes)
	case op.CondSrcPort, op.CondDstPort, op.CondICMPType:
		return rangeSpans(t.Ranges, 0)
	case op.CondICMP6Type:
		return rangeSpans(t.Ranges, 256)
	case op.CondVersion:
		if t.A == 6 {
			return spans{indexSpan(256, 511)}
		}
		return spans{indexSpan(0, 255)}
	case op.CondProto:
		return spans{indexSpan(t.A, t.A), indexSpan(256+t.A, 256+t.A)}
	case op.CondIn:
		return spans{indexSpan(0, 0), indexSpan(2, 2)}
	case op.CondOut:
		return spans{indexSpan(1, 1), indexSpan(3, 3)}
	case op.CondFrag:
		return spans{indexSpan(2, 3)}
	case op.CondFlags:
		return flagSpans(func(f uint32) bool { return f&t.B == t.A })
	case op.CondEstab:
		return flagSpans(func(f uint32) bool { return f&(tcpRST|tcpACK) != 0 })
	}
	return nil
}

func rangeSpans(ranges []Range, add uint32) spans {
	out := make(spans, len(ranges))
	for i, r := range ranges {
		out[i] = indexSpan(r.Lo+add, r.Hi+add)
	}
	return union(out)
}

// flagSpans returns the flag bytes for which match is true; NoFlags never is.
func flagSpans(match func(uint32) bool) spans {
	var out spans
	for f := range uint32(256) {
		if match(f) {
			out = append(out, indexSpan(f, f))
		}
	}
	return union(out)
}
