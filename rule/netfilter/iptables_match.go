package netfilter

import (
	"strconv"
	"strings"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// match reads an option of a match module.
func (p *ruleParser) match(w string) {
	switch w {
	case "--comment":
		p.entry.comment = p.next()
	case "--sport", "--source-port":
		p.ports(op.CondSrcPort, p.next())
	case "--dport", "--destination-port":
		p.ports(op.CondDstPort, p.next())
	case "--sports", "--source-ports":
		p.ports(op.CondSrcPort, p.next())
	case "--dports", "--destination-ports":
		p.ports(op.CondDstPort, p.next())
	case "--ports":
		r, ok := portRanges(p.next())
		if !ok {
			p.fail("unknown port")
		}
		p.any(rule.Test{Op: op.CondSrcPort, Ranges: r}, rule.Test{Op: op.CondDstPort, Ranges: r})
	case "--syn":
		p.test(rule.Test{Op: op.CondFlags, A: tcpSYN, B: tcpSYN | tcpACK | tcpRST | tcpFIN})
	case "--tcp-flags":
		p.flags(p.next(), p.next())
	case "--icmp-type":
		p.icmp(packet.ProtoICMP, p.next(), icmpNames4)
	case "--icmpv6-type":
		p.icmp(packet.ProtoICMPv6, p.next(), icmpNames6)
	case "--state", "--ctstate":
		p.state(p.next())
	case "--src-type":
		p.addrType(p.next(), op.CondSrcIn, op.CondSrcMe, op.CondSrcTable)
	case "--dst-type":
		p.addrType(p.next(), op.CondDstIn, op.CondDstMe, op.CondDstTable)
	case "--src-range":
		p.addrRange(op.CondSrcIn, p.next())
	case "--dst-range":
		p.addrRange(op.CondDstIn, p.next())
	case "--match-set":
		p.matchSet(p.next(), p.next())
	case "--length":
		p.numbers(op.CondLen, p.next(), 65535)
	case "--ttl-eq", "--hl-eq":
		p.numbers(op.CondTTL, p.next(), 255)
	case "--ttl-lt", "--hl-lt":
		p.below(p.next())
	case "--ttl-gt", "--hl-gt":
		p.above(p.next())
	case "--dscp":
		p.dscp(p.next())
	case "--dscp-class":
		p.dscpClass(p.next())
	case "--probability":
		p.probability(p.next())
	case "--mode":
		if p.next() != "random" {
			p.fail("statistic --mode nth has no equivalent in rules; --mode random has: prob")
		}
	case "--invert":
		if p.module != "rpfilter" {
			p.fail("%s of the match %s has no equivalent in rules", w, p.module)
			return
		}
		for _, c := range p.entry.clauses {
			c[0].Not = c[0].Not != (c[0].Op == op.CondVerRevPath)
		}
	case "--validmark", "--loose", "--accept-local":
		if w == "--loose" {
			p.fail("rpfilter --loose: write versrcreach")
		}
	case "--limit", "--limit-burst":
		p.limit(w, p.next())
	default:
		p.unknown(w)
	}
}

func (p *ruleParser) ports(o op.Cond, list string) {
	r, ok := portRanges(list)
	if !ok {
		p.fail("unknown port %s", list)
	}
	p.test(rule.Test{Op: o, Ranges: r})
}

func (p *ruleParser) flags(mask, set string) {
	m, ok1 := flagBits(mask)
	s, ok2 := flagBits(set)
	if !ok1 || !ok2 {
		p.fail("unknown TCP flags %s %s", mask, set)
	}
	switch {
	case s&^m != 0: // never
		p.test(rule.Test{Op: op.CondTrue, Not: true})
	case m != 0:
		p.test(rule.Test{Op: op.CondFlags, A: s, B: m})
	}
}

func flagBits(list string) (bits uint32, ok bool) {
	names := map[string]uint32{"FIN": tcpFIN, "SYN": tcpSYN, "RST": tcpRST, "PSH": tcpPSH,
		"ACK": tcpACK, "URG": tcpURG, "ALL": 0x3f, "NONE": 0}
	for f := range strings.SplitSeq(list, ",") {
		b, known := names[strings.ToUpper(f)]
		if !known {
			return 0, false
		}
		bits |= b
	}
	return bits, true
}

func (p *ruleParser) icmp(is packet.Proto, text string, names map[string]string) {
	if text == "any" || text == "255" && is == packet.ProtoICMP {
		if p.not {
			p.entry.clauses = append(p.entry.clauses, rule.Clause{noPacket})
		}
		return
	}
	if n, ok := names[text]; ok {
		text = n
	}
	kind, code, coded := strings.Cut(text, "/")
	n, ok := number(kind, 255)
	if !ok {
		p.fail("unknown type %s of ICMP", text)
	}
	if coded {
		p.fail("ICMP codes are not matched, only types: type %d, code %s", n, code)
	}
	p.test(icmpTypes(is, ranges(n, n)))
}

// state reads a list of conntrack states.
func (p *ruleParser) state(list string) {
	var k kinds
	for s := range strings.SplitSeq(list, ",") {
		is, ok := kindNames[strings.ToLower(s)]
		if !ok {
			p.fail("the conntrack state %s is not known to Weir: translations are its own", s)
			return
		}
		k |= is
	}
	if p.not {
		k = anyKind &^ k
	}
	p.entry.kinds &= k
}

func (p *ruleParser) addrType(list string, in, me, table op.Cond) {
	var tests []rule.Test
	for s := range strings.SplitSeq(list, ",") {
		t, ok := p.reader.set.typeTests(strings.ToLower(s), p.reader.family, in, me,
			table)
		if !ok {
			p.fail("addresses of the type %s are not known to Weir", s)
			return
		}
		tests = append(tests, t...)
	}
	if len(tests) == 0 {
		tests = []rule.Test{{Op: op.CondTrue, Not: true}}
	}
	p.entry.clauses = append(p.entry.clauses, p.reader.set.butAnycast(p.reader.family, p.not, tests,
		table)...)
}

func (p *ruleParser) addrRange(o op.Cond, text string) {
	prefixes, err := rangePrefixes(text)
	if err != nil {
		p.fail("%v", err)
	}
	p.test(rule.Test{Op: o, Prefixes: prefixes})
}

func (p *ruleParser) numbers(o op.Cond, text string, most uint64) {
	r, ok := numberRange(text, most)
	if !ok {
		p.fail("unknown number %s", text)
	}
	p.test(rule.Test{Op: o, Ranges: []rule.Range{r}})
}

func (p *ruleParser) below(text string) {
	n, ok := number(text, 255)
	if !ok || n == 0 {
		p.fail("unknown number %s", text)
		return
	}
	p.test(rule.Test{Op: op.CondTTL, Ranges: ranges(0, n-1)})
}

func (p *ruleParser) above(text string) {
	n, ok := number(text, 254)
	if !ok {
		p.fail("unknown number %s", text)
		return
	}
	p.test(rule.Test{Op: op.CondTTL, Ranges: ranges(n+1, 255)})
}

func (p *ruleParser) dscp(text string) {
	n, err := strconv.ParseUint(text, 0, 6)
	if err != nil {
		p.fail("unknown DSCP %s", text)
	}
	p.test(dscpTest(uint(n)))
}

func (p *ruleParser) dscpClass(text string) {
	n, ok := dscpClasses[strings.ToLower(text)]
	if !ok {
		p.fail("unknown class %s", text)
	}
	p.test(dscpTest(n))
}

func (p *ruleParser) probability(text string) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f <= 0 || f > 1 {
		p.fail("unknown probability %s", text)
		return
	}
	if p.not {
		f = 1 - f
	}
	if f == 0 {
		p.entry.clauses = append(p.entry.clauses, rule.Clause{noPacket})
	} else if f < 1 {
		p.entry.prob = f
	}
}

// matchSet reads the name of an ipset and which addresses are looked up.
func (p *ruleParser) matchSet(name, flags string) {
	o := op.CondSrcTable
	switch flags {
	case "src":
	case "dst":
		o = op.CondDstTable
	default:
		p.fail("a set of more than addresses (%s) is not a table", flags)
		return
	}
	table := p.reader.set.tableName(name, name)
	p.reader.set.use(p.entry.place, table)
	p.test(rule.Test{Op: o, Name: table})
}
