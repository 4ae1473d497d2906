package rule

import (
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/weirnet/weir/rule/op"
)

// random makes rules as the parser makes them: canonical, so that printing and parsing gives the
// same rule. Its sets are small, so that rules and packets meet.
type random struct{ *rand.Rand }

func (g random) one(of ...string) string { return of[g.IntN(len(of))] }

func (g random) chance(percent int) bool { return g.IntN(100) < percent }

func (g random) addr() netip.Addr {
	if g.chance(30) {
		a := netip.MustParseAddr("2001:db8::").As16()
		a[g.IntN(16)] ^= byte(g.IntN(4))
		a[15] = byte(g.IntN(8))
		return netip.AddrFrom16(a)
	}
	return netip.AddrFrom4([4]byte{10, byte(g.IntN(2)), byte(g.IntN(4)), byte(g.IntN(256))})
}

func (g random) prefix() netip.Prefix {
	a := g.addr()
	bits := a.BitLen() - g.IntN(a.BitLen()/3)
	if g.chance(30) {
		bits = a.BitLen()
	}
	if g.chance(5) {
		bits = g.IntN(a.BitLen())
	}
	return netip.PrefixFrom(a, bits).Masked()
}

func (g random) ranges(lo, hi uint32) []Range {
	var out []Range
	for range 1 + g.IntN(3) {
		a := lo + g.Uint32N(hi-lo+1)
		b := a
		if g.chance(40) {
			b += g.Uint32N(hi - a + 1)
		}
		out = append(out, Range{a, b})
	}
	return out
}

func (g random) flags(flags []bitName) (a, b uint32) {
	for b == 0 {
		for _, f := range flags {
			if !g.chance(40) || f.bits&b != 0 {
				continue
			}
			b |= f.bits
			if g.chance(50) {
				a |= f.bits
			}
		}
	}
	return a, b
}

func (g random) proto() Test {
	switch g.IntN(6) {
	case 0:
		return Test{Op: op.CondVersion, A: 4 + 2*g.Uint32N(2)}
	case 1:
		return Test{Op: op.CondProto, A: g.Uint32N(256)}
	}
	return Test{Op: op.CondProto, A: []uint32{1, 6, 6, 17, 58, 132, 136}[g.IntN(7)]}
}

func (g random) address(op op.Cond) Test {
	switch g.IntN(8) {
	case 0:
		return Test{Op: meOf[op], A: 6 * g.Uint32N(2)}
	case 1:
		t := Test{Op: tableOf[op], Name: g.one("a", "web", "app=web", "k8s.io/x=y")}
		if g.chance(50) {
			t.HasValue, t.Value = true, g.Uint32N(3)
		}
		return t
	}
	t := Test{Op: op}
	for range 1 + g.IntN(3) {
		t.Prefixes = append(t.Prefixes, g.prefix())
	}
	return t
}

func (g random) ports(op op.Cond) Test {
	if g.chance(50) {
		return Test{Op: op, Ranges: []Range{{80, 80}}}
	}
	return Test{Op: op, Ranges: g.ranges(0, 65535)}
}

func (g random) iface() Test {
	op := []op.Cond{op.CondRecv, op.CondXmit, op.CondVia}[g.IntN(3)]
	switch g.IntN(5) {
	case 0:
		return Test{Op: op + opAny}
	case 1:
		return Test{Op: op + opGlob, Name: g.one("eth*", "pod:*", "*0", "?un1", "eth[01]", "*[!0]")}
	case 2:
		a := g.addr()
		return Test{Op: op + opAddr, Prefixes: []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}}
	}
	return Test{Op: op, Name: g.one("eth0", "eth1", "tun1", "pod:a")}
}

func (g random) option() Test {
	plain := []op.Cond{op.CondIn, op.CondOut, op.CondEstab, op.CondVerRevPath, op.CondVerSrcReach,
		op.CondAntiSpoof}
	numbers := []Test{
		{Op: op.CondICMPType, B: 255}, {Op: op.CondICMP6Type, B: 255}, {Op: op.CondTTL, B: 255},
		{Op: op.CondLen, B: 65535}, {Op: op.CondID, B: 65535},
		{Op: op.CondWin, B: 65535}, {Op: op.CondTagged, A: 1, B: 65534},
	}
	switch g.IntN(12) {
	case 0:
		return g.address(op.CondSrcIn)
	case 1:
		return g.address(op.CondDstIn)
	case 2:
		return g.ports(op.CondSrcPort)
	case 3:
		return g.ports(op.CondDstPort)
	case 4:
		return g.proto()
	case 5:
		return g.iface()
	case 6:
		t := numbers[g.IntN(len(numbers))]
		return Test{Op: t.Op, Ranges: g.ranges(t.A, t.B)}
	case 7:
		lists := []struct {
			op    op.Cond
			flags []bitName
		}{{op.CondFlags, tcpFlags}, {op.CondFlags, tcpFlags}, {op.CondIPOptions, ipOptions},
			{op.CondTOS, tosFlags},
			{op.CondFrag, fragFlags}}
		l := lists[g.IntN(len(lists))]
		a, b := g.flags(l.flags)
		return Test{Op: l.op, A: a, B: b}
	case 8:
		return Test{Op: op.CondFrag, A: op.FragOffset, B: op.FragOffset}
	case 9:
		switch g.IntN(4) {
		case 0:
			return Test{Op: op.CondSeq, A: g.Uint32()}
		case 1:
			return Test{Op: op.CondAck, A: g.Uint32()}
		case 2:
			return Test{Op: op.CondPrecedence, A: g.Uint32N(8)}
		}
		return Test{Op: op.CondDSCP, A: 1 << g.IntN(32), B: g.Uint32()}
	}
	return Test{Op: plain[g.IntN(len(plain))]}
}

func (g random) clause(test func() Test) Clause {
	n := 1
	if g.chance(20) {
		n += 1 + g.IntN(2)
	}
	var c Clause
	for range n {
		t := test()
		if n > 1 && g.chance(5) {
			t = Test{Op: op.CondTrue}
		}
		t.Not = g.chance(20) || n == 1 && t.Op == op.CondTrue
		c = append(c, t)
	}
	return c
}

func (g random) rule() *Rule {
	r := &Rule{Number: uint16(1 + g.IntN(3000)), Comment: g.one("", "", "a comment // and # more")}
	if g.chance(10) {
		r.Set = uint8(g.IntN(32))
	}
	if g.chance(10) {
		r.Prob = []float64{0.5, 1e-10, 0.123456789, 1 - 1e-9}[g.IntN(4)]
	}
	r.Action.Op = op.Action(1 + g.IntN(int(op.ActionFwd)))
	if g.chance(50) {
		r.Action.Op = []op.Action{op.ActionAllow, op.ActionDeny, op.ActionCount}[g.IntN(3)]
	}
	switch r.Action.Op {
	case op.ActionUnreach, op.ActionUnreach6:
		r.Action.Arg = g.Uint32N(20)
	case op.ActionSkipTo, op.ActionCall, op.ActionPipe, op.ActionNAT:
		r.Action.Arg = 1 + g.Uint32N(4000)
	case op.ActionFwd:
		r.Action.NextHop = netip.AddrPortFrom(netip.MustParseAddr(g.one("127.0.0.1", "10.1.2.3",
			"::1", "2001:db8::1")), uint16(g.IntN(3)*3128))
	case op.ActionCheckState:
		r.State = State{Op: op.StateCheck, Flow: g.one("", "", "any", "web")}
		return r
	}
	if g.chance(20) {
		r.Log = true
		r.LogMax = g.Uint32N(3) * 100
	}
	if g.chance(10) {
		r.Tag = uint16(1 + g.IntN(5))
	}
	g.body(r)
	if g.chance(15) {
		r.Rate = g.rate()
	}
	g.state(r)
	return r
}

func (g random) body(r *Rule) {
	if g.chance(70) {
		r.Proto = g.clause(g.proto)
	}
	if g.chance(50) {
		r.Src = g.clause(func() Test { return g.address(op.CondSrcIn) })
	}
	if g.chance(30) {
		r.SrcPort = g.clause(func() Test { return g.ports(op.CondSrcPort) })
	}
	if g.chance(50) {
		r.Dst = g.clause(func() Test { return g.address(op.CondDstIn) })
	}
	if g.chance(40) {
		r.DstPort = g.clause(func() Test { return g.ports(op.CondDstPort) })
	}
	for g.chance(50) {
		r.Options = append(r.Options, g.clause(g.option))
	}
}

func (g random) rate() Rate {
	r := Rate{N: 1 + g.Uint32N(MaxRate), Per: rateUnits[g.IntN(len(rateUnits))].per,
		Mask: op.LimitMask(g.IntN(16)), Next: g.chance(50)}
	r.Burst = 1 + g.Uint32N(2*r.N)
	if g.chance(50) || r.Burst > MaxRate {
		r.Burst = r.N
	}
	return r
}

func (g random) state(r *Rule) {
	if !g.chance(30) || r.Action.Op == op.ActionNAT {
		return
	}
	r.State = State{Op: op.StateKeep + op.State(g.IntN(4)),
		Flow: g.one("", "", "web", strings.Repeat("x", maxName))}
	if r.State.Op == op.StateLimit || r.State.Op == op.StateSetLimit {
		r.State.Mask = op.LimitMask(1 + g.IntN(15))
		r.State.Limit = 1 + g.Uint32N(1000)
	}
	r.Defer, r.Liberal = g.chance(20), g.chance(20)
}
