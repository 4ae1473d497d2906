package rule

import (
	"net/netip"
	"slices"
)

// tuple is what the conditions of a rule look at, as plain values.
type tuple struct {
	src, dst     netip.Addr
	proto        uint32
	later        bool // a later fragment: nothing of the transport header is known
	sport, dport uint32
	flags        uint32
	icmp         uint32
	seq, ack     uint32
	win          uint32
	frag         uint32 // FragBits
	ttl, len, id uint32
	options, tos uint32
	tags         []uint32
	out          bool
	recv, xmit   string // "" for none
	truth        uint32 // answers of the routing conditions and of me, bit per op
}

// random makes a packet that may meet the rules of random.rule.
func (g random) tuple() *tuple {
	p := &tuple{
		src: g.addr(), dst: g.addr(),
		proto: []uint32{1, 6, 6, 6, 17, 17, 58, 132, 136, 47}[g.IntN(10)], later: g.chance(10),
		sport: g.Uint32N(65536), dport: g.Uint32N(65536), flags: g.Uint32N(256),
		icmp: g.Uint32N(256),
		seq:  g.Uint32(), ack: g.Uint32(), win: g.Uint32N(65536), frag: g.Uint32N(16) &^ FragOffset,
		ttl: g.Uint32N(256), len: g.Uint32N(65536), id: g.Uint32N(65536), options: g.Uint32N(16),
		tos: g.Uint32N(256),
		out: g.chance(50), recv: g.one("", "eth0", "eth1", "pod:a"), truth: g.Uint32(),
	}
	for p.dst.Is4() != p.src.Is4() {
		p.dst = g.addr()
	}
	if g.chance(40) {
		p.dport = 80
	}
	if p.src.Is6() {
		p.frag &= FragMF
	}
	if p.later {
		p.frag |= FragOffset
	}
	if p.out {
		p.xmit = g.one("eth0", "eth1", "tun1", "pod:a")
	}
	if g.chance(30) {
		p.tags = []uint32{1 + g.Uint32N(65534), 1 + g.Uint32N(5)}
	}
	return p
}

// match is the meaning of a rule's conditions, straight from the manual.
func (p *tuple) match(r *Rule) bool {
	for _, c := range r.Clauses() {
		if !slices.ContainsFunc(c, func(t Test) bool { return p.test(&t) != t.Not }) {
			return false
		}
	}
	return true
}

func in(ranges []Range, n uint32) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.Lo <= n && n <= r.Hi })
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (p *tuple) fact(op CondOp) bool { return p.truth>>(op%32)&1 == 1 }

func (p *tuple) test(t *Test) bool {
	v4 := p.src.Is4()
	tcp := p.proto == 6 && !p.later
	ports := !p.later && (p.proto == 6 || p.proto == 17 || p.proto == 132 || p.proto == 136)
	via := p.recv
	if p.out {
		via = p.xmit
	}
	switch t.Op {
	case OpTrue:
		return true
	case OpVersion:
		return v4 == (t.A == 4)
	case OpProto:
		return p.proto == t.A
	case OpSrcIn:
		return within(t.Prefixes, p.src)
	case OpDstIn:
		return within(t.Prefixes, p.dst)
	case OpSrcMe, OpDstMe:
		return p.fact(t.Op) && (t.A == 0 || !v4)
	case OpSrcTable, OpDstTable: // every address has the value of its last bit
		a := p.src
		if t.Op == OpDstTable {
			a = p.dst
		}
		return p.fact(t.Op) && (!t.HasValue || t.Value == uint32(a.As16()[15]&1))
	case OpSrcPort:
		return ports && in(t.Ranges, p.sport)
	case OpDstPort:
		return ports && in(t.Ranges, p.dport)
	case OpIn:
		return !p.out
	case OpOut:
		return p.out
	case OpRecv:
		return p.recv == t.Name
	case OpXmit:
		return p.xmit == t.Name
	case OpVia:
		return via == t.Name
	case OpRecvGlob:
		return p.recv != "" && Glob(t.Name, p.recv)
	case OpXmitGlob:
		return p.xmit != "" && Glob(t.Name, p.xmit)
	case OpViaGlob:
		return via != "" && Glob(t.Name, via)
	case OpRecvAny:
		return p.recv != ""
	case OpXmitAny:
		return p.xmit != ""
	case OpViaAny:
		return via != ""
	case OpRecvAddr, OpXmitAddr, OpViaAddr, OpVerRevPath, OpVerSrcReach, OpAntiSpoof:
		return p.fact(t.Op)
	case OpFlags:
		return tcp && p.flags&t.B == t.A
	case OpEstab:
		return tcp && p.flags&0x14 != 0
	case OpSeq:
		return tcp && p.seq == t.A
	case OpAck:
		return tcp && p.ack == t.A
	case OpWin:
		return tcp && in(t.Ranges, p.win)
	case OpFrag:
		return p.frag&t.B == t.A
	case OpICMPType:
		return v4 && p.proto == 1 && !p.later && in(t.Ranges, p.icmp)
	case OpICMP6Type:
		return !v4 && p.proto == 58 && !p.later && in(t.Ranges, p.icmp)
	case OpTTL:
		return in(t.Ranges, p.ttl)
	case OpLen:
		return in(t.Ranges, p.len)
	case OpID:
		return v4 && in(t.Ranges, p.id)
	case OpIPOptions:
		return v4 && p.options&t.B == t.A
	case OpTOS:
		return v4 && p.tos&t.B == t.A
	case OpDSCP:
		return (uint64(t.A)|uint64(t.B)<<32)>>(p.tos>>2)&1 == 1
	case OpPrecedence:
		return v4 && p.tos>>5 == t.A
	case OpTagged:
		return slices.ContainsFunc(p.tags, func(tag uint32) bool { return in(t.Ranges, tag) })
	}
	panic(t.Op.Word())
}

// candidates returns the AND of the packet's vectors, looked up as an engine does.
func (c *Classifier) candidates(p *tuple) []uint64 {
	sport, dport, flags, icmp := uint32(NoPort), uint32(NoPort), uint32(NoFlags), uint32(NoICMP)
	proto, hook := p.proto, uint32(0)
	if !p.later {
		switch p.proto {
		case 6, 17, 132, 136:
			sport, dport = p.sport, p.dport
		}
		switch {
		case p.proto == 6:
			flags = p.flags
		case p.proto == 1 && p.src.Is4():
			icmp = p.icmp
		case p.proto == 58 && p.src.Is6():
			icmp = 256 + p.icmp
		}
	}
	if p.src.Is6() {
		proto += 256
	}
	if p.out {
		hook++
	}
	if p.later {
		hook += 2
	}
	vector := func(dim Dim, class uint32) []uint64 {
		return c.Vectors[dim][int(class)*c.Words:][:c.Words]
	}
	vectors := [NumDims][]uint64{
		vector(DimSrc, addressClass(&c.Src, p.src)), vector(DimDst, addressClass(&c.Dst, p.dst)),
		vector(DimSrcPort, uint32(c.Ports[0][sport])),
		vector(DimDstPort, uint32(c.Ports[1][dport])),
		vector(DimProto, uint32(c.Proto[proto])), vector(DimFlags, uint32(c.Flags[flags])),
		vector(DimICMP, uint32(c.ICMP[icmp])), vector(DimHook, uint32(c.Hook[hook])),
	}
	all := slices.Clone(vectors[0])
	for _, v := range vectors[1:] {
		for i := range all {
			all[i] &= v[i]
		}
	}
	return all
}

// residue reports whether the residual conditions of a slot are true.
func (p *tuple) residue(prog *Program, slot int) bool {
	code := prog.Rules[slot]
	clause := false
	for _, cond := range prog.Conds[code.Cond:code.CondEnd] {
		t := prog.test(cond)
		clause = clause || p.test(&t) != t.Not
		if cond.Flags&FlagOr != 0 {
			continue
		}
		if !clause {
			return false
		}
		clause = false
	}
	return true
}

// test turns a condition back into a test.
func (prog *Program) test(c Cond) Test {
	t := Test{Op: c.Op, Not: c.Flags&FlagNot != 0, A: c.A, B: c.B}
	switch c.Op {
	case OpSrcIn, OpDstIn, OpRecvAddr, OpXmitAddr, OpViaAddr:
		t.Prefixes = prog.Prefixes[c.A : c.A+uint32(c.N)]
	case OpSrcPort, OpDstPort, OpWin, OpICMPType, OpICMP6Type, OpTTL, OpLen, OpID, OpTagged:
		t.Ranges = prog.Ranges[c.A : c.A+uint32(c.N)]
	case OpSrcTable, OpDstTable:
		t.Name, t.HasValue, t.Value = prog.Tables[c.A], c.N == 1, c.B
	case OpRecv, OpXmit, OpVia:
		t.Name = prog.Names[c.A]
	case OpRecvGlob, OpXmitGlob, OpViaGlob:
		t.Name = prog.Globs[c.A]
	}
	return t
}

// addressClass looks an address up the slow way: in the three levels of IPv4, or for the longest
// IPv6 prefix.
func addressClass(a *Addresses, addr netip.Addr) uint32 {
	if ip := addr.Unmap(); ip.Is4() {
		b := ip.As4()
		e := a.Root[uint32(b[0])<<8|uint32(b[1])]
		for _, low := range b[2:] {
			if e&DirBlock != 0 {
				e = a.Blocks[e&^DirBlock<<8|uint32(low)]
			}
		}
		return e
	}
	class, longest := a.Default6, -1
	for _, p := range a.V6 {
		if p.Prefix.Contains(addr) && p.Prefix.Bits() > longest {
			class, longest = p.Class, p.Prefix.Bits()
		}
	}
	return class
}
