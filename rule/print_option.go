package rule

import "github.com/weirnet/weir/rule/op"

// appendOption prints a condition in option position.
func appendOption(b []byte, t *Test) []byte {
	switch {
	case t.Op == op.CondFlags && t.A == tcpSYN && t.B == tcpSYN|tcpACK:
		return append(b, "setup"...)
	case t.Op == op.CondFrag && t.A == op.FragOffset && t.B == op.FragOffset:
		return append(b, "frag"...)
	}
	b = append(b, t.Op.Word()...)
	switch t.Op {
	case op.CondProto:
		return appendProtocol(append(b, ' '), t)
	case op.CondSrcIn, op.CondSrcMe, op.CondSrcTable, op.CondDstIn, op.CondDstMe, op.CondDstTable,
		op.CondRecvAddr, op.CondXmitAddr,
		op.CondViaAddr:
		return appendAddress(append(b, ' '), t)
	case op.CondSrcPort, op.CondDstPort, op.CondWin, op.CondICMPType, op.CondICMP6Type, op.CondTTL,
		op.CondLen, op.CondID, op.CondTagged:
		return appendRanges(append(b, ' '), t.Ranges)
	case op.CondRecv, op.CondXmit, op.CondVia, op.CondRecvGlob, op.CondXmitGlob, op.CondViaGlob:
		return append(append(b, ' '), t.Name...)
	case op.CondVersion, op.CondSeq, op.CondAck, op.CondPrecedence:
		return appendNumber(append(b, ' '), t.A)
	case op.CondFlags:
		return appendFlags(append(b, ' '), t, tcpFlags)
	case op.CondFrag:
		return appendFlags(append(b, ' '), t, fragFlags)
	case op.CondIPOptions:
		return appendFlags(append(b, ' '), t, ipOptions)
	case op.CondTOS:
		return appendFlags(append(b, ' '), t, tosFlags)
	case op.CondDSCP:
		return appendDSCP(append(b, ' '), uint64(t.A)|uint64(t.B)<<32)
	}
	return b
}

// appendFlags prints the flags that must be set, and with ! those that must not.
func appendFlags(b []byte, t *Test, flags []bitName) []byte {
	set, clear, sep := t.A, t.B&^t.A, ""
	for _, f := range flags {
		switch {
		case set&f.bits == f.bits:
			b = append(append(b, sep...), f.name...)
			set &^= f.bits
		case clear&f.bits == f.bits:
			b = append(append(append(b, sep...), '!'), f.name...)
			clear &^= f.bits
		default:
			continue
		}
		sep = ","
	}
	return b
}

func appendDSCP(b []byte, mask uint64) []byte {
	sep := ""
	for n := range uint32(64) {
		if mask>>n&1 == 0 {
			continue
		}
		b = append(b, sep...)
		if name := dscpNames[n]; name != "" {
			b = append(b, name...)
		} else {
			b = appendNumber(b, n)
		}
		sep = ","
	}
	return b
}
