package rule

// A clause whose tests all lie in one dimension is baked: it becomes the set of that dimension's
// keys for which it is true. The set is equivalent to the clause, also for packets without a value
// in the dimension (they have a key of their own), so nothing of the clause remains to be tested.

// noDim is the dimension of tests that the classifier cannot decide.
const noDim = NumDims

// dimRange is the whole of each dimension.
var dimRange = [NumDims]span{
	DimSrc:     allAddresses,
	DimDst:     allAddresses,
	DimSrcPort: indexSpan(0, PortIndexes-1),
	DimDstPort: indexSpan(0, PortIndexes-1),
	DimProto:   indexSpan(0, ProtoIndexes-1),
	DimFlags:   indexSpan(0, FlagIndexes-1),
	DimICMP:    indexSpan(0, ICMPIndexes-1),
	DimHook:    indexSpan(0, HookIndexes-1),
}

// dim returns the dimension that decides the test alone, or noDim.
func (t *Test) dim() Dim {
	switch t.Op {
	case OpSrcIn:
		return DimSrc
	case OpDstIn:
		return DimDst
	case OpSrcPort:
		return DimSrcPort
	case OpDstPort:
		return DimDstPort
	case OpVersion, OpProto:
		return DimProto
	case OpFlags, OpEstab:
		return DimFlags
	case OpICMPType, OpICMP6Type:
		return DimICMP
	case OpIn, OpOut:
		return DimHook
	case OpFrag:
		if t.A == FragOffset && t.B == FragOffset {
			return DimHook
		}
	}
	return noDim
}

// dim returns the dimension that decides the clause alone, or noDim.
func (c Clause) dim() Dim {
	dim := c[0].dim()
	for i := range c[1:] {
		if c[i+1].dim() != dim {
			return noDim
		}
	}
	return dim
}

// spans returns the keys of dim for which the clause is true.
func (c Clause) spans(dim Dim) spans {
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
func (t *Test) spans(dim Dim) spans {
	s := t.positive()
	if t.Not {
		return complement(s, dimRange[dim])
	}
	return s
}

func (t *Test) positive() spans {
	switch t.Op {
	case OpSrcIn, OpDstIn:
		return prefixes(t.Prefixes)
	case OpSrcPort, OpDstPort, OpICMPType:
		return rangeSpans(t.Ranges, 0)
	case OpICMP6Type:
		return rangeSpans(t.Ranges, 256)
	case OpVersion:
		if t.A == 6 {
			return spans{indexSpan(256, 511)}
		}
		return spans{indexSpan(0, 255)}
	case OpProto:
		return spans{indexSpan(t.A, t.A), indexSpan(256+t.A, 256+t.A)}
	case OpIn:
		return spans{indexSpan(0, 0), indexSpan(2, 2)}
	case OpOut:
		return spans{indexSpan(1, 1), indexSpan(3, 3)}
	case OpFrag:
		return spans{indexSpan(2, 3)}
	case OpFlags:
		return flagSpans(func(f uint32) bool { return f&t.B == t.A })
	case OpEstab:
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
