package rule

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
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
		seq:  g.Uint32(), ack: g.Uint32(), win: g.Uint32N(65536),
		frag: g.Uint32N(16) &^ op.FragOffset,
		ttl:  g.Uint32N(256), len: g.Uint32N(65536), id: g.Uint32N(65536), options: g.Uint32N(16),
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
		p.frag &= op.FragMF
	}
	if p.later {
		p.frag |= op.FragOffset
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

func (p *tuple) fact(op op.Cond) bool { return p.truth>>(op%32)&1 == 1 }

func (p *tuple) test(t *Test) bool {
	v4 := p.src.Is4()
	tcp := p.proto == 6 && !p.later
	ports := !p.later && (p.proto == 6 || p.proto == 17 || p.proto == 132 || p.proto == 136)
	via := p.recv
	if p.out {
		via = p.xmit
	}
	switch t.Op {
	case op.CondTrue:
		return true
	case op.CondVersion:
		return v4 == (t.A == 4)
	case op.CondProto:
		return p.proto == t.A
	case op.CondSrcIn:
		return within(t.Prefixes, p.src)
	case op.CondDstIn:
		return within(t.Prefixes, p.dst)
	case op.CondSrcMe, op.CondDstMe:
		return p.fact(t.Op) && (t.A == 0 || !v4)
	case op.CondSrcTable, op.CondDstTable: // every address has the value of its last bit
		a := p.src
		if t.Op == op.CondDstTable {
			a = p.dst
		}
		return p.fact(t.Op) && (!t.HasValue || t.Value == uint32(a.As16()[15]&1))
	case op.CondSrcPort:
		return ports && in(t.Ranges, p.sport)
	case op.CondDstPort:
		return ports && in(t.Ranges, p.dport)
	case op.CondIn:
		return !p.out
	case op.CondOut:
		return p.out
	case op.CondRecv:
		return p.recv == t.Name
	case op.CondXmit:
		return p.xmit == t.Name
	case op.CondVia:
		return via == t.Name
	case op.CondRecvGlob:
		return p.recv != "" && Glob(t.Name, p.recv)
	case op.CondXmitGlob:
		return p.xmit != "" && Glob(t.Name, p.xmit)
	case op.CondViaGlob:
		return via != "" && Glob(t.Name, via)
	case op.CondRecvAny:
		return p.recv != ""
	case op.CondXmitAny:
		return p.xmit != ""
	case op.CondViaAny:
		return via != ""
	case op.CondRecvAddr, op.CondXmitAddr, op.CondViaAddr, op.CondVerRevPath, op.CondVerSrcReach,
		op.CondAntiSpoof:
		return p.fact(t.Op)
	case op.CondFlags:
		return tcp && p.flags&t.B == t.A
	case op.CondEstab:
		return tcp && p.flags&0x14 != 0
	case op.CondSeq:
		return tcp && p.seq == t.A
	case op.CondAck:
		return tcp && p.ack == t.A
	case op.CondWin:
		return tcp && in(t.Ranges, p.win)
	case op.CondFrag:
		return p.frag&t.B == t.A
	case op.CondICMPType:
		return v4 && p.proto == 1 && !p.later && in(t.Ranges, p.icmp)
	case op.CondICMP6Type:
		return !v4 && p.proto == 58 && !p.later && in(t.Ranges, p.icmp)
	case op.CondTTL:
		return in(t.Ranges, p.ttl)
	case op.CondLen:
		return in(t.Ranges, p.len)
	case op.CondID:
		return v4 && in(t.Ranges, p.id)
	case op.CondIPOptions:
		return v4 && p.options&t.B == t.A
	case op.CondTOS:
		return v4 && p.tos&t.B == t.A
	case op.CondDSCP:
		return (uint64(t.A)|uint64(t.B)<<32)>>(p.tos>>2)&1 == 1
	case op.CondPrecedence:
		return v4 && p.tos>>5 == t.A
	case op.CondTagged:
		return slices.ContainsFunc(p.tags, func(tag uint32) bool { return in(t.Ranges, tag) })
	}
	panic(t.Op.Word())
}

// candidates returns the AND of the packet's vectors, looked up as an engine does.
func candidates(c *program.Classifier, p *tuple) []uint64 {
	sport, dport, flags, icmp := uint32(program.NoPort), uint32(program.NoPort),
		uint32(program.NoFlags), uint32(program.NoICMP)
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
	vector := func(dim program.Dim, class uint32) []uint64 {
		v := make([]uint64, c.Words)
		c.Vectors[dim].Read(int(class), v)
		return v
	}
	vectors := [program.NumDims][]uint64{
		vector(program.DimSrc, addressClass(&c.Src, p.src)),
		vector(program.DimDst, addressClass(&c.Dst, p.dst)),
		vector(program.DimSrcPort, uint32(c.Ports[0][sport])),
		vector(program.DimDstPort, uint32(c.Ports[1][dport])),
		vector(program.DimProto, uint32(c.Proto[proto])),
		vector(program.DimFlags, uint32(c.Flags[flags])),
		vector(program.DimICMP, uint32(c.ICMP[icmp])),
		vector(program.DimHook, uint32(c.Hook[hook])),
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
func (p *tuple) residue(prog *program.Program, slot int) bool {
	code := prog.Rules[slot]
	clause := false
	for _, cond := range prog.Conds[code.Cond:code.CondEnd] {
		t := testOf(prog, cond)
		clause = clause || p.test(&t) != t.Not
		if cond.Flags&program.FlagOr != 0 {
			continue
		}
		if !clause {
			return false
		}
		clause = false
	}
	return true
}

// testOf turns a condition back into a test.
func testOf(prog *program.Program, c program.Cond) Test {
	t := Test{Op: c.Op, Not: c.Flags&program.FlagNot != 0, A: c.A, B: c.B}
	switch c.Op {
	case op.CondSrcIn, op.CondDstIn, op.CondRecvAddr, op.CondXmitAddr, op.CondViaAddr:
		t.Prefixes = prog.Prefixes[c.A : c.A+uint32(c.N)]
	case op.CondSrcPort, op.CondDstPort, op.CondWin, op.CondICMPType, op.CondICMP6Type, op.CondTTL,
		op.CondLen, op.CondID, op.CondTagged:
		for _, r := range prog.Ranges[c.A : c.A+uint32(c.N)] {
			t.Ranges = append(t.Ranges, Range(r))
		}
	case op.CondSrcTable, op.CondDstTable:
		t.Name, t.HasValue, t.Value = prog.Tables[c.A], c.N == 1, c.B
	case op.CondRecv, op.CondXmit, op.CondVia:
		t.Name = prog.Names[c.A]
	case op.CondRecvGlob, op.CondXmitGlob, op.CondViaGlob:
		t.Name = prog.Globs[c.A]
	}
	return t
}

// addressClass looks an address up the slow way: in the three levels of IPv4, or for the longest
// IPv6 prefix.
func addressClass(a *program.Addresses, addr netip.Addr) uint32 {
	if ip := addr.Unmap(); ip.Is4() {
		b := ip.As4()
		want := binary.BigEndian.Uint32(b[:])
		at, found := slices.BinarySearchFunc(a.V4, want,
			func(have program.AddressClass, want uint32) int {
				return cmp.Compare(have.Start, want)
			})
		if !found {
			at--
		}
		return a.V4[at].Class
	}
	class, longest := a.Default6, -1
	for _, p := range a.V6 {
		if p.Prefix.Contains(addr) && p.Prefix.Bits() > longest {
			class, longest = p.Class, p.Prefix.Bits()
		}
	}
	return class
}
