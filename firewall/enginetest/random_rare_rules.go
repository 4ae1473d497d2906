package enginetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/internal/program"
)

// rareRules puts rules between those of a set. The others have the words of these rules, but not in
// these forms: conditions on all values of a field, long lists, and sets that are disabled.
func (g random) rareRules(lines []string, have program.Features) []string {
	if have|program.HasPipe != program.AllFeatures {
		return lines
	}
	lines = slices.Clone(lines)
	for range g.IntN(12) {
		lines = slices.Insert(lines, g.IntN(len(lines)+1), g.rareRule(100*(1+g.IntN(12))))
	}
	if g.chance(15) { // rules of which none is met, over several words of each vector
		for range 60 + g.IntN(200) {
			lines = append(lines, fmt.Sprintf("add %d %s tcp from 203.0.113.%d to any %d",
				100*(1+g.IntN(12)), g.one("deny", "count", "allow"), g.IntN(256), 1+g.IntN(65535)))
		}
	}
	if g.chance(20) {
		lines = append(lines, "set disable 5")
	}
	return lines
}

// rareRule draws a rule.
func (g random) rareRule(number int) string {
	action := g.one("allow", "deny", "count", "count", "reset", "unreach needfrag", "unreach 255",
		"unreach6 no-route", "unreach6 4", "allow log", "deny log logamount 1")
	set := ""
	if g.chance(15) {
		set = g.one("set 5 ", "set 31 ")
	}
	s := fmt.Sprintf("add %d %s%s", number, set, action)
	if g.chance(50) {
		s += fmt.Sprintf(" %s from %s to %s", g.rareProto(), g.rareEnd(), g.rareEnd())
	} else {
		s += " " + g.rareOption()
	}
	for g.chance(40) {
		s += " " + g.rareOption()
	}
	if strings.Contains(action, "allow") && g.chance(60) {
		s += " " + g.rareState()
	}
	return s
}

func (g random) rareProto() string {
	return g.one("ip", "0", "1", "58", "41", "50", "51", "59", "60", "255", "4", "not tcp",
		"not ip4", "{ 47 or not ip6 }", "{ tcp or udp or sctp or 136 }", "udplite")
}

func (g random) rareEnd() string {
	a := g.one("any", "me", "not me6", "10.0.0.1", "10.0.0.0/24{1,3,9}", "not 10.0.1.0/24{1-8}",
		"10.0.0.0:255.255.255.252", "10.0.0.2,10.0.1.9,192.168.0.5,2001:db8::3,fd00::5",
		"{ me or table(1) or 10.0.0.3 }", "{ not table(bad,1) or fe80::/10 }",
		"table(app=web)", "not table(none)", "0.0.0.0/1,8000::/1", "::/1", "fe80::1,169.254.0.1",
		"{ 10.0.0.0/31 or not 2001:db8::/127 or me6 }")
	if g.chance(25) {
		a += " " + g.one("domain", "not 0-1023", "22,53,80,443,1024,4000,40000-40001", "not 0",
			"0", "65535", "0-65535", "not 0-65535", "ssh,http,https")
	}
	return a
}

func (g random) rareOption() string {
	not := ""
	if g.chance(20) {
		not = "not "
	}
	n := func(word string, most int) string {
		a, b := g.IntN(most+1), g.IntN(most+1)
		return fmt.Sprintf("%s %d,%d-%d", word, g.IntN(most+1), min(a, b), max(a, b))
	}
	switch g.IntN(18) {
	case 0:
		return not + n("icmptypes", 20)
	case 1:
		return not + n("icmp6types", 255)
	case 2:
		return not + n("ipttl", 255)
	case 3:
		return not + n("iplen", 200)
	case 4:
		return not + n("ipid", 200)
	case 5:
		return not + n("tcpwin", 2500)
	case 6:
		return not + fmt.Sprintf("dscp %d,%d", g.IntN(64), g.IntN(64))
	case 7:
		return not + fmt.Sprintf("ipprecedence %d", g.IntN(8))
	case 8:
		return not + "iptos " + g.flags("lowdelay", "throughput", "reliability",
			"congestion")
	case 9:
		return not + "tcpflags " + g.flags("fin", "syn", "rst", "psh", "ack", "urg")
	case 10:
		return not + "frag " + g.flags("df", "mf", "rf", "offset")
	case 11:
		return not + "ipoptions " + g.flags("ssrr", "lsrr", "rr", "ts")
	case 12:
		return not + g.one("src-ip", "dst-ip") + " " + g.one("me", "me6", "table(1)",
			"table(bad,0)", "10.0.0.1,2001:db8::1,fe80::/10", "table(none)")
	case 13:
		return not + "proto " + g.rareProtoNumber()
	case 14:
		return fmt.Sprintf("{ %s or %s or %s }", g.rareOption1(), g.rareOption1(), g.rareOption1())
	case 15:
		return not + g.one("recv", "xmit", "via") + " " + g.one("any", "lo", "*", "eth?",
			"[!e]*", "127.0.0.1", "10.0.9.9")
	case 16:
		return not + g.one("tcpseq 5000", "tcpack 1001", "tcpack 5001", "tcpseq 4294967280")
	}
	return not + fmt.Sprintf("%s %d-65535", g.one("src-port", "dst-port"), 1000*g.IntN(60))
}

func (g random) rareProtoNumber() string { return g.one("0", "50", "58", "icmp", "255", "ipv6") }

// rareOption1 draws an option for an or-block.
func (g random) rareOption1() string {
	return g.one("in", "not out", "setup", "not established", "src-port 53", "not dst-port 80",
		"src-ip me", "not dst-ip table(1)", "frag", "not frag", "ipversion 6", "icmptypes 3",
		"not icmp6types 1-4", "proto 17", "not proto tcp", "tagged 1", "recv eth0", "not via lo",
		"verrevpath", "antispoof", "tcpflags syn,!ack", "dst-ip 10.0.0.0/8,2001:db8::/32")
}

func (g random) rareState() string {
	return g.one("keep-state", "keep-state :web", "limit all 1", "limit src-port 2",
		"limit dst-addr dst-port 1 :x", "set-limit all 2", "record-state :web",
		"limit src-addr 2000", "keep-state :x defer-action", "record-state liberal")
}
