package netfilter

import (
	"fmt"
	"strings"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// match reads a match: left op right.
func (p *nftParser) match(m map[string]any) {
	operator, _ := m["op"].(string)
	left, _ := m["left"].(map[string]any)
	if list, ok := left["concat"].([]any); ok {
		p.concat(operator, list, m["right"])
		return
	}
	if masked, ok := left["&"].([]any); ok && len(masked) == 2 {
		p.masked(operator, masked, m["right"])
		return
	}
	var set *nftSet
	right := m["right"]
	if ref, ok := right.(string); ok && strings.HasPrefix(ref, "@") {
		if set = p.reader.lookup(p.rule, ref); set == nil {
			p.fail("there is no set %s", ref)
			return
		}
		right = set.Elem
	}
	t, err := p.tests(left, operator, right, set)
	if err == nil && !understood(operator, left) {
		err = fmt.Errorf("the operator %q of a match is not understood", operator)
	}
	if err != nil {
		p.fail("%v", err)
		return
	}
	p.also(t.needs...)
	if t.kinds != 0 {
		if inverts(operator) {
			t.kinds = anyKind &^ t.kinds
		}
		for _, e := range p.all {
			e.kinds &= t.kinds
		}
		return
	}
	if t.anycast != 0 && len(t.tests) > 0 {
		p.also(p.reader.set.butAnycast(p.families, inverts(operator), t.tests, t.anycast)...)
		return
	}
	p.ask(operator, t.tests)
}

// ask adds that one of the tests is true, or none of them if the operator inverts.
func (p *nftParser) ask(operator string, tests []rule.Test) {
	if len(tests) == 0 {
		tests = []rule.Test{{Op: op.CondTrue, Not: true}}
	}
	if inverts(operator) {
		p.also(negated(tests)...)
	} else {
		p.also(rule.Clause(tests))
	}
}

// nftTests is what a match asks: one of the tests, or a kind of packet, beside what it needs for
// that.
type nftTests struct {
	needs []rule.Clause
	tests []rule.Test
	kinds kinds
	// of types of addresses: how the table Anycast is asked
	anycast op.Cond
}

// tests returns the tests of a match. set is the named set on its right side, nil if there is none.
func (p *nftParser) tests(left map[string]any, operator string, right any,
	set *nftSet) (t nftTests, err error) {
	if ct, ok := left["ct"].(map[string]any); ok {
		return p.conntrack(ct, right)
	}
	if fib, ok := left["fib"].(map[string]any); ok {
		return p.fib(fib, right)
	}
	list, err := values(right)
	if err != nil {
		return t, err
	}
	if meta, ok := left["meta"].(map[string]any); ok {
		key, _ := meta["key"].(string)
		return p.meta(key, operator, list)
	}
	if payload, ok := left["payload"].(map[string]any); ok {
		protocol, _ := payload["protocol"].(string)
		field, _ := payload["field"].(string)
		return p.payload(protocol, field, operator, list, set)
	}
	for what := range left {
		return t, fmt.Errorf("%s is not matched by rules", what)
	}
	return t, fmt.Errorf("a match that is not understood")
}

func (p *nftParser) conntrack(ct map[string]any, right any) (t nftTests, err error) {
	key, _ := ct["key"].(string)
	if key != "state" {
		return t, fmt.Errorf("ct %s: translations, marks and helpers of conntrack are not seen",
			key)
	}
	list, err := values(right)
	for _, v := range list {
		k, ok := kindNames[v.lo]
		if !ok {
			return t, fmt.Errorf("the conntrack state %s is not known to Weir", v.lo)
		}
		t.kinds |= k
	}
	return t, err
}

func (p *nftParser) fib(fib map[string]any, right any) (t nftTests, err error) {
	result, _ := fib["result"].(string)
	flags := fmt.Sprint(fib["flags"])
	if one, ok := fib["flags"].(string); ok {
		flags = "[" + one + "]"
	}
	list, err := values(right)
	if err != nil {
		return t, err
	}
	in, me, table := op.CondDstIn, op.CondDstMe, op.CondDstTable
	if strings.Contains(flags, "saddr") {
		in, me, table = op.CondSrcIn, op.CondSrcMe, op.CondSrcTable
	}
	switch {
	case result == "type" && !strings.Contains(flags, "iif") && !strings.Contains(flags, "oif"):
		for _, v := range list {
			tests, ok := p.reader.set.typeTests(v.lo, p.families, in, me, table)
			if !ok {
				return t, fmt.Errorf("addresses of the type %s are not known to Weir", v.lo)
			}
			t.tests = append(t.tests, tests...)
		}
		t.anycast = table
	case result == "oif" && in == op.CondSrcIn && strings.Contains(flags, "iif") && len(list) == 1:
		missing := list[0].lo == "false" || list[0].lo == "0"
		if !missing && list[0].lo != "true" {
			return t, fmt.Errorf("fib oif asks for no interface, or for any")
		}
		t.tests = []rule.Test{{Op: op.CondVerRevPath, Not: missing}}
	default:
		return t, fmt.Errorf("fib %s of %s has no equivalent in rules", result, flags)
	}
	return t, nil
}

// meta reads what nft knows beside the packet.
func (p *nftParser) meta(key, operator string, list []nftValue) (t nftTests, err error) {
	for _, v := range list {
		var one rule.Test
		ok := true
		switch key {
		case "l4proto":
			var n packet.Proto
			n, ok = protocolNumber(v.lo)
			one = proto(n)
		case "nfproto", "protocol":
			versions := map[string]uint32{"ipv4": 4, "ipv6": 6, "ip": 4, "ip6": 6}
			one = rule.Test{Op: op.CondVersion, A: versions[v.lo]}
			ok = one.A != 0
		case "iif", "iifname":
			one, ok = interfaceTest(op.CondRecv, op.CondRecvGlob, op.CondRecvAny, v.lo, "*")
		case "oif", "oifname":
			one, ok = interfaceTest(op.CondXmit, op.CondXmitGlob, op.CondXmitAny, v.lo, "*")
		case "length":
			one, ok = numbers(op.CondLen, operator, v, 65535, nil)
		case "mark":
			return t, fmt.Errorf("marks of netfilter are not seen")
		case "skuid", "skgid", "cgroup":
			return t, fmt.Errorf("the socket of a packet is not looked up; filter by port or " +
				"by pod")
		case "pkttype":
			return t, fmt.Errorf("the type of a frame is not known; fib daddr type asks for the " +
				"address")
		default:
			return t, fmt.Errorf("meta %s is not matched by rules", key)
		}
		if !ok {
			return t, fmt.Errorf("meta %s %s is not understood", key, v.lo)
		}
		t.tests = append(t.tests, one)
	}
	return t, nil
}

func numbers(o op.Cond, operator string, v nftValue, most uint32,
	names map[string]string) (rule.Test, bool) {
	r, ok := v.number(uint64(most), names)
	if ok {
		r, ok = compared(operator, r, most)
	}
	return rule.Test{Op: o, Ranges: []rule.Range{r}}, ok
}

// masked reads a match of bits: tcp flags & mask == bits.
func (p *nftParser) masked(operator string, masked []any, right any) {
	left, _ := masked[0].(map[string]any)
	payload, _ := left["payload"].(map[string]any)
	if payload["protocol"] != "tcp" || payload["field"] != "flags" {
		p.fail("bits of a field are not matched by rules, but those of tcp flags")
		return
	}
	mask, ok := flagSet(masked[1])
	ok = ok && mask != 0 && (operator == "==" || operator == "!=")
	var tests []rule.Test
	for _, value := range members(right) {
		bits, known := flagSet(value)
		ok = ok && known
		if bits&^mask == 0 { // else no packet has this value
			tests = append(tests, rule.Test{Op: op.CondFlags, A: bits, B: mask})
		}
	}
	if !ok {
		p.fail("unknown TCP flags")
		return
	}
	p.also(rule.Clause{proto(packet.ProtoTCP)})
	p.ask(operator, tests)
}

// flagSet reads TCP flags: a name, a number, a list, or names joined by "|".
func flagSet(v any) (bits uint32, ok bool) {
	switch v := v.(type) {
	case string:
		return flagBits(v)
	case float64:
		return uint32(v), v >= 0 && v < 64
	case map[string]any:
		if or, found := v["|"]; found {
			return flagSet(or)
		}
	case []any:
		for _, item := range v {
			b, ok := flagSet(item)
			if !ok {
				return 0, false
			}
			bits |= b
		}
		return bits, true
	}
	return 0, false
}

// concat reads a match of several fields at once. Each element makes an entry.
func (p *nftParser) concat(operator string, left []any, right any) {
	elements := mapElements(right)
	if ref, ok := right.(string); ok {
		if set := p.reader.lookup(p.rule, ref); set != nil {
			elements = set.Elem
		}
	}
	if elements == nil {
		elements = []any{right}
	}
	if operator != "==" && operator != "in" || len(elements)*len(p.all) > maxSplit {
		p.fail("a concatenation that is inverted, or too large to write out")
		return
	}
	var alternatives []func(*entry)
	for _, item := range elements {
		if e, ok := item.(map[string]any); ok && e["elem"] != nil {
			inner, _ := e["elem"].(map[string]any)
			item = inner["val"]
		}
		m, _ := item.(map[string]any)
		parts, _ := m["concat"].([]any)
		if len(parts) != len(left) {
			p.fail("a concatenation that is not understood")
			return
		}
		sub := &nftParser{reader: p.reader, rule: p.rule, families: p.families,
			all: []*entry{{kinds: anyKind}}}
		for i := range parts {
			sub.match(map[string]any{"op": "==", "left": left[i], "right": parts[i]})
		}
		one := sub.all[0]
		alternatives = append(alternatives, func(e *entry) {
			v, target, code := e.verdict, e.target, e.code
			e.take(one)
			e.verdict, e.target, e.code = v, target, code
		})
	}
	p.split(alternatives)
}
