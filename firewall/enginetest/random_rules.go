package enginetest

import (
	"fmt"
	"strings"

	"github.com/weirnet/weir/internal/program"
)

// rules draws a rule set of the language that an engine has, as lines of a rule file.
func (g random) rules(have program.Features) []string {
	lines := make([]string, 2+g.IntN(24))
	if have&program.HasKeepState != 0 && g.chance(50) {
		lines[0] = "add 1 check-state"
	}
	for i := range lines {
		if lines[i] == "" {
			lines[i] = g.rule(have, 100*(1+g.IntN(12)))
		}
	}
	if have&program.HasPipe != 0 {
		for number := range 4 { // of those that rules name, one more is missing
			lines = append(lines, fmt.Sprintf("pipe %d config %s", number+1, g.pipe()))
		}
	}
	if have&program.HasNAT != 0 { // nat 3 is missing
		lines = append(lines, "nat 1 config ip 203.0.113.1", "nat 2 config ip 203.0.113.2 deny_in")
	}
	if have&program.HasCall != 0 && g.chance(4) {
		lines = append(lines, ladder()...)
	}
	return lines
}

// ladder returns rules that call each other more often than a packet may jump: each of eight steps
// calls the next one twice.
func ladder() []string {
	var lines []string
	for number := 2000; number < 2008; number++ {
		call := fmt.Sprintf("add %d call %d ip from any to any", number, number+1)
		lines = append(lines, call, call, fmt.Sprintf("add %d return ip from any to any", number))
	}
	return append(lines, "add 2008 return ip from any to any")
}

// rule draws one rule. Jumps aim at numbers that exist.
func (g random) rule(have program.Features, number int) string {
	has := func(f program.Features) bool { return have&f != 0 }
	var b strings.Builder
	fmt.Fprintf(&b, "add %d ", number)
	if has(program.HasProb) && g.chance(5) {
		fmt.Fprintf(&b, "prob %s ", g.one("0.5", "0.01", "0.99"))
	}
	action, keeps := g.action(has, number)
	if action == "check-state" {
		b.WriteString(action)
		if has(program.HasFlows) && g.chance(40) {
			b.WriteString(" :" + g.one("any", "web", "x"))
		}
		return b.String()
	}
	b.WriteString(action)
	if has(program.HasLog) && g.chance(5) {
		b.WriteString(" log logamount 2")
	}
	if has(program.HasTagged) && g.chance(8) {
		fmt.Fprintf(&b, " tag %d", 1+g.IntN(12))
	}
	if g.chance(25) { // nothing but options decides
		fmt.Fprintf(&b, " ip from any to any %s", g.option(has))
	} else {
		fmt.Fprintf(&b, " %s from %s to %s", g.proto(), g.end(has), g.end(has))
	}
	for g.chance(45) {
		b.WriteString(" " + g.option(has))
	}
	if has(program.HasRate) && g.chance(8) {
		b.WriteString(" " + g.rate())
	}
	if keeps && has(program.HasKeepState) && g.chance(55) {
		if s := g.state(has); !strings.HasPrefix(action, "nat ") {
			b.WriteString(" " + s)
		}
	}
	return b.String()
}

// action draws an action. keeps says that the rule may well keep state.
func (g random) action(has func(program.Features) bool, number int) (action string, keeps bool) {
	if has(program.HasPipe) && g.chance(12) {
		return fmt.Sprintf("pipe %d", 1+g.IntN(5)), g.chance(40)
	}
	switch n := g.IntN(21); {
	case n < 9:
		return g.one("allow", "allow", "accept", "pass", "permit"), true
	case n < 12:
		return g.one("deny", "deny", "drop"), g.chance(10)
	case n < 14:
		return "count", g.chance(50)
	case n == 14 && has(program.HasSkipTo):
		return fmt.Sprintf("skipto %d", number+100*g.IntN(5)), g.chance(30)
	case n == 15 && has(program.HasCall):
		if g.chance(50) {
			return "return", false
		}
		return fmt.Sprintf("call %d", 100*(1+g.IntN(12))), g.chance(20)
	case n == 16 && has(program.HasReject):
		return g.one("reject", "unreach port", "unreach6 admin-prohib", "unreach 13"), false
	case n == 17 && has(program.HasReset):
		return "reset", false
	case n == 18 && has(program.HasKeepState):
		return "check-state", false
	case n == 19 && has(program.HasNAT):
		return fmt.Sprintf("nat %d", 1+number/100%3), true
	case n == 20 && has(program.HasFwd):
		return g.one("fwd", "fwd", "forward") + " " +
			g.one("127.0.0.1,3128", "10.9.9.9", "::1,3128", "2001:db8::9"), true
	}
	return "allow", true
}

func (g random) proto() string {
	return g.one("ip", "ip", "tcp", "tcp", "tcp", "udp", "udp", "icmp", "ipv6-icmp", "ip4", "ip6",
		"sctp", "47", "136", "{ tcp or udp }", "{ udp or not tcp }")
}

// end draws an address with or without ports.
func (g random) end(has func(program.Features) bool) string {
	s := g.address(has)
	if g.chance(20) {
		s += " " + g.port()
	}
	return s
}

func (g random) port() string {
	if g.chance(15) {
		return "not " + g.one(ports...)
	}
	return g.numbers(22, 53, 80, 443, 1024, 4000, 40000, 65535)
}

func (g random) address(has func(program.Features) bool) string {
	not := ""
	if g.chance(10) {
		not = "not "
	}
	switch n := g.IntN(10); {
	case n < 4:
		return "any"
	case n == 4 && has(program.HasMe):
		return not + g.one("me", "me", "me6")
	case n == 5 && has(program.HasTable):
		value := ""
		if g.chance(40) {
			value = fmt.Sprintf(",%d", g.IntN(3))
		}
		return fmt.Sprintf("%stable(%s%s)", not, g.one(tables...), value)
	case n == 6 && has(program.HasMixed):
		other := g.one(nets6...)
		if has(program.HasMe) && g.chance(50) {
			other = "me"
		}
		return fmt.Sprintf("{ %s or not %s }", g.one(nets4...), other)
	case n == 7:
		return not + g.one(nets4...) + "," + g.one(addrs6...)
	case n == 8:
		return not + g.one(append([]string{"::ffff:0:0/96"}, nets6...)...) // the first: no packet
	}
	return not + g.one(nets4...)
}

// flags draws one to three flags, some of which must be clear.
func (g random) flags(of ...string) string {
	g.Shuffle(len(of), func(i, k int) { of[i], of[k] = of[k], of[i] })
	var items []string
	for _, f := range of[:1+g.IntN(min(3, len(of)))] {
		if g.chance(40) {
			f = "!" + f
		}
		items = append(items, f)
	}
	return strings.Join(items, ",")
}

// option draws an option of those that the engine has.
func (g random) option(has func(program.Features) bool) string {
	type choice struct {
		needs program.Features
		draw  func() string
	}
	word := func(words ...string) func() string { return func() string { return g.one(words...) } }
	list := func(w string, of ...int) func() string {
		return func() string { return w + " " + g.numbers(of...) }
	}
	flags := func(w string, of ...string) func() string {
		return func() string { return w + " " + g.flags(of...) }
	}
	choices := []choice{
		{0, word("in", "out", "in", "out")}, {0, word("setup", "established")},
		{0, word("setup", "estab")},
		{0, flags(g.one("tcpflags", "tcpflgs"), "fin", "syn", "rst", "psh", "ack", "urg")},
		{0, word("frag", "fragment")}, {0,
			word("ip4", "ipv4", "ip6", "ipv6", "ipversion 4", "ipver 6")},
		{0, list("icmptypes", 0, 3, 8, 11)}, {0, list("icmp6types", 1, 2, 128, 129)},
		{0, list(g.one("icmptype", "icmp6type"), 0, 3, 8, 128, 129)},
		{0, list("src-port", 22, 53, 80, 4000, 40000)},
		{0, list("dst-port", 22, 53, 80, 443, 40000)},
		{0, word("proto tcp", "proto udp", "proto 47")},
		{0, func() string {
			return g.one("src-ip ", "dst-ip ", "src-ip6 ", "dst-ip6 ", "src-ipv6 ", "dst-ipv6 ") +
				g.one("any", nets4[0], nets4[3], nets6[1], addrs6[0])
		}},
		{program.HasInterface, func() string {
			return g.one("via ", "recv ", "xmit ") + g.one(names...)
		}},
		{program.HasGlob, func() string {
			return g.one("via ", "recv ", "xmit ") +
				g.one("eth*", "pod:*", "?th1", "*", "eth[1-9]", "*[!1]")
		}},
		{program.HasAnyIface, func() string { return g.one("via ", "recv ", "xmit ") + "any" }},
		{program.HasIfaceAddr, func() string {
			return g.one("via ", "recv ", "xmit ") + g.one("10.0.0.1", "10.0.1.1", "2001:db8::1")
		}},
		{program.HasFragBits, flags("frag", "df", "mf", "offset", "rf")},
		{program.HasIPFields, list("ipttl", 1, 2, 64, 255)},
		{program.HasIPFields, list("iplen", 40, 60, 100, 1500)},
		{program.HasIPFields, list("ipid", 0, 7, 100, 65535)},
		{program.HasIPOptions, flags(g.one("ipoptions", "ipopts"), "ssrr", "lsrr", "rr", "ts")},
		{program.HasTOS, flags("iptos", "lowdelay", "throughput", "reliability", "mincost")},
		{program.HasTOS, word("iptos congestion", "iptos !congestion")},
		{program.HasTOS, word("dscp ef,cs1", "dscp be", "ipprecedence 5", "ipprecedence 0")},
		{program.HasSeq, word("tcpseq 1000", "tcpack 0", "tcpwin 0-2000")},
		{program.HasTagged, list("tagged", 1, 2, 3, 9, 12)},
		{program.HasVerRevPath, word("verrevpath")}, {program.HasVerSrcReach, word("versrcreach")},
		{program.HasAntiSpoof, word("antispoof")},
	}
	draw := func() string {
		for {
			if c := choices[g.IntN(len(choices))]; c.needs == 0 || has(c.needs) {
				not := ""
				if g.chance(18) {
					not = "not "
				}
				if s := c.draw(); not == "" || !strings.Contains(s, " not ") {
					return not + s
				}
			}
		}
	}
	if has(program.HasMixed) && g.chance(10) {
		return "{ " + draw() + " or " + draw() + " }"
	}
	return draw()
}

// pipe draws the configuration of a pipe that carries few packets, in times that the cases know.
func (g random) pipe() string {
	s := "bw " + g.one("1Kbit/s", "1Kbit/s", "1000", "8000", "3KByte/s", "1Gbit/s", "0")
	s += g.one("", " queue 2", " queue 100B", " queue 60B", " queue 150Bytes burst 50",
		" queue 200B", " queue 80B burst 1K")
	return s + g.one("", "", " mask all", " mask src-ip /32",
		" mask src-ip 0xffffffff src-ip6 /128",
		" mask src-ip 0x000000ff", " mask dst-ip /8 dst-ip6 64", " mask src-ip6 /48 proto 0xff",
		" mask dst-ip 0xffffff00 dst-ip6 /128 src-port 0xffff dst-port 0xfff0", " mask dst-port /8",
		" mask proto 6")
}

// rate draws a limit-rate of few tokens that come back in times that the cases know.
func (g random) rate() string {
	s := "limit-rate " + g.one("1/s", "2/s", "7/s", "20/s", "3/m", "1/m", "100/h")
	s += g.one("", "", " src-addr", " src-addr", " dst-addr", " src-port", " dst-port",
		" dst-addr dst-port", " all")
	if g.chance(60) {
		s += fmt.Sprintf(" burst %d", 1+g.IntN(5))
	}
	return s + g.one("", "", " exceed drop", " exceed next", " exceed next")
}

func (g random) state(has func(program.Features) bool) string {
	name := ""
	if has(program.HasFlows) && g.chance(30) {
		name = " :" + g.one("web", "x")
	}
	limit := fmt.Sprintf("%s %d",
		g.one("src-addr", "dst-addr", "src-addr dst-port", "dst-port",
			"src-addr src-port dst-addr dst-port"), 1+g.IntN(3))
	s := "keep-state"
	switch n := g.IntN(10); {
	case n < 2 && has(program.HasLimit):
		s = "limit " + limit
	case n == 2 && has(program.HasRecordState):
		s = "record-state"
	case n == 3 && has(program.HasSetLimit):
		s = "set-limit " + limit
	}
	s += name
	if has(program.HasDefer) && g.chance(10) {
		s += g.one(" defer-action", " defer-action", " defer-immediate-action")
	}
	if has(program.HasLiberal) && g.chance(10) {
		s += " liberal"
	}
	return s
}
