package rule

// words are the canonical words of conditions in option position.
var words = [...]string{
	OpTrue: "src-ip any", OpVersion: "ipversion", OpProto: "proto",
	OpSrcIn: "src-ip", OpSrcMe: "src-ip", OpSrcTable: "src-ip", OpDstIn: "dst-ip",
	OpDstMe: "dst-ip", OpDstTable: "dst-ip",
	OpSrcPort: "src-port", OpDstPort: "dst-port", OpIn: "in", OpOut: "out",
	OpRecv: "recv", OpRecvGlob: "recv", OpRecvAny: "recv any", OpRecvAddr: "recv",
	OpXmit: "xmit", OpXmitGlob: "xmit", OpXmitAny: "xmit any", OpXmitAddr: "xmit",
	OpVia: "via", OpViaGlob: "via", OpViaAny: "via any", OpViaAddr: "via",
	OpFlags: "tcpflags", OpEstab: "established", OpSeq: "tcpseq", OpAck: "tcpack", OpWin: "tcpwin",
	OpFrag:     "frag",
	OpICMPType: "icmptypes", OpICMP6Type: "icmp6types", OpTTL: "ipttl", OpLen: "iplen",
	OpID:        "ipid",
	OpIPOptions: "ipoptions", OpTOS: "iptos", OpDSCP: "dscp", OpPrecedence: "ipprecedence",
	OpTagged:     "tagged",
	OpVerRevPath: "verrevpath", OpVerSrcReach: "versrcreach", OpAntiSpoof: "antispoof",
}

// Word returns the option that stands for the condition in rule text.
func (op CondOp) Word() string {
	if int(op) < len(words) && words[op] != "" {
		return words[op]
	}
	return "unknown"
}

// appendOption prints a condition in option position.
func appendOption(b []byte, t *Test) []byte {
	switch {
	case t.Op == OpFlags && t.A == tcpSYN && t.B == tcpSYN|tcpACK:
		return append(b, "setup"...)
	case t.Op == OpFrag && t.A == FragOffset && t.B == FragOffset:
		return append(b, "frag"...)
	}
	b = append(b, t.Op.Word()...)
	switch t.Op {
	case OpProto:
		return appendProtocol(append(b, ' '), t)
	case OpSrcIn, OpSrcMe, OpSrcTable, OpDstIn, OpDstMe, OpDstTable, OpRecvAddr, OpXmitAddr,
		OpViaAddr:
		return appendAddress(append(b, ' '), t)
	case OpSrcPort, OpDstPort, OpWin, OpICMPType, OpICMP6Type, OpTTL, OpLen, OpID, OpTagged:
		return appendRanges(append(b, ' '), t.Ranges)
	case OpRecv, OpXmit, OpVia, OpRecvGlob, OpXmitGlob, OpViaGlob:
		return append(append(b, ' '), t.Name...)
	case OpVersion, OpSeq, OpAck, OpPrecedence:
		return appendNumber(append(b, ' '), t.A)
	case OpFlags:
		return appendFlags(append(b, ' '), t, tcpFlags)
	case OpFrag:
		return appendFlags(append(b, ' '), t, fragFlags)
	case OpIPOptions:
		return appendFlags(append(b, ' '), t, ipOptions)
	case OpTOS:
		return appendFlags(append(b, ' '), t, tosFlags)
	case OpDSCP:
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
