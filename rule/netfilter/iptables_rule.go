package netfilter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// ruleParser reads one rule of iptables.
type ruleParser struct {
	reader *iptablesReader
	entry  *entry
	words  []string
	target string
	module string // of the last -m
	option string // that is read
	not    bool   // "!" stood before it
}

// fail leaves the rule out. The first reason counts.
func (p *ruleParser) fail(format string, args ...any) {
	if p.entry.problem == "" {
		p.entry.problem = fmt.Sprintf(format, args...)
	}
}

// next returns the next word, "" at the end.
func (p *ruleParser) next() string {
	if len(p.words) == 0 {
		p.fail("%s has no value", p.option)
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	if w == "!" && len(p.words) > 0 { // the old place of the negation
		p.not = !p.not
		w, p.words = p.words[0], p.words[1:]
	}
	return w
}

// test adds a condition, inverted if the option is.
func (p *ruleParser) test(t rule.Test) {
	t.Not = t.Not != p.not
	p.entry.clauses = append(p.entry.clauses, rule.Clause{t})
}

// any adds tests of which one has to be true, or none if the option is inverted.
func (p *ruleParser) any(tests ...rule.Test) {
	c := rule.Clause(tests)
	if p.not {
		p.entry.clauses = append(p.entry.clauses, negated(c)...)
		return
	}
	p.entry.clauses = append(p.entry.clauses, c)
}

func (p *ruleParser) parse() {
	for len(p.words) > 0 {
		w := p.words[0]
		p.words = p.words[1:]
		if w == "!" {
			p.not = !p.not
			continue
		}
		p.option = w
		p.one(w)
		p.not = false
	}
	if p.entry.rate != nil {
		p.entry.rate.end(p.entry)
	}
	if p.target == "" { // it counts
		p.entry.quiet = true
	}
}

// one reads an option with its values.
func (p *ruleParser) one(w string) {
	switch w {
	case "-m", "--match":
		p.useModule(p.next())
	case "-j", "--jump":
		p.jump(p.next())
	case "-g", "--goto":
		p.target = p.next()
		p.entry.verdict, p.entry.target = goTo, p.reader.key(p.target)
	case "-c", "--set-counters":
		p.next()
		p.next()
	case "-s", "--source", "--src":
		p.address(op.CondSrcIn, p.next())
	case "-d", "--destination", "--dst":
		p.address(op.CondDstIn, p.next())
	case "-p", "--protocol", "--proto":
		p.protocol(p.next())
	case "-i", "--in-interface":
		p.iface(op.CondRecv, op.CondRecvGlob, op.CondRecvAny, p.next())
	case "-o", "--out-interface":
		p.iface(op.CondXmit, op.CondXmitGlob, op.CondXmitAny, p.next())
	case "-f", "--fragment":
		p.test(rule.Test{Op: op.CondFrag, A: op.FragOffset, B: op.FragOffset})
	case "-4", "--ipv4":
		p.entry.clauses = append(p.entry.clauses, version(ipv4)...)
	case "-6", "--ipv6":
		p.entry.clauses = append(p.entry.clauses, version(ipv6)...)
	default:
		p.match(w)
	}
}

// jump reads a target with its options.
func (p *ruleParser) jump(target string) {
	e := p.entry
	p.target = target
	switch target {
	case "ACCEPT":
		e.verdict = accept
	case "DROP":
		e.verdict = drop
	case "RETURN":
		e.verdict = back
	case "REJECT":
		e.verdict = reject
		word := "icmp-port-unreachable"
		if p.reader.family == ipv6 {
			word = "icmp6-port-unreachable"
		}
		if len(p.words) > 1 && p.words[0] == "--reject-with" {
			word = p.words[1]
			p.words = p.words[2:]
		}
		var ok bool
		if e.code, ok = rejections[word]; !ok {
			p.fail("unknown answer %s", word)
		}
	case "LOG", "NFLOG", "ULOG":
		e.log = true
		p.options(1, "--log-tcp-sequence", "--log-tcp-options", "--log-ip-options", "--log-uid",
			"--log-macdecode")
	case "MASQUERADE", "SNAT", "DNAT", "REDIRECT", "NETMAP", "TPROXY":
		p.options(1, "--random", "--random-fully", "--persistent")
		p.fail("%s", translationHint(target))
	case "MARK", "CONNMARK", "CT", "NOTRACK", "TCPMSS", "CHECKSUM", "CLASSIFY", "DSCP", "TOS",
		"TTL",
		"HL", "SET", "AUDIT", "TRACE", "TEE", "CONNSECMARK", "SECMARK", "RATEEST", "ECN", "LED",
		"IDLETIMER", "SYNPROXY", "NFQUEUE", "QUEUE", "HMARK", "TCPOPTSTRIP":
		p.words = nil
		p.fail("%s", targetProblem(target))
		e.other = slices.Contains([]string{"NFQUEUE", "QUEUE", "NOTRACK", "CT", "SYNPROXY", "TEE",
			"SET"}, target)
		e.quiet = target == "CHECKSUM" || target == "TCPMSS" || target == "AUDIT" ||
			target == "TRACE"
	default:
		e.verdict, e.target = jump, p.reader.key(target)
	}
}

// targetProblem is why a target is not carried over.
func targetProblem(target string) string {
	switch target {
	case "NFQUEUE", "QUEUE":
		return "packets are not queued to programs"
	case "SYNPROXY":
		return "SYN cookies are answered by themselves in a flood: the setting [states] syn_cookies"
	case "SET":
		return "rules do not change tables; `weir fw table` does"
	case "NOTRACK", "CT":
		return "a rule makes a state or not by keep-state; helpers and zones do not exist"
	case "TEE", "TRACE", "AUDIT":
		return target + ": `log` makes an event of a packet"
	}
	return target + ": rules do not change packets"
}

// options skips the options of a target: each has values, but for the flags.
func (p *ruleParser) options(values int, flags ...string) {
	for len(p.words) > 0 && strings.HasPrefix(p.words[0], "--") {
		n := 1 + values
		if slices.Contains(flags, p.words[0]) {
			n = 1
		}
		p.words = p.words[min(n, len(p.words)):]
	}
}

func (p *ruleParser) address(o op.Cond, list string) {
	var prefixes []rule.Test
	t := rule.Test{Op: o}
	for item := range strings.SplitSeq(list, ",") {
		prefix, err := parsePrefix(item)
		if err != nil {
			p.fail("%v", err)
			return
		}
		t.Prefixes = append(t.Prefixes, prefix)
	}
	p.any(append(prefixes, t)...)
}

func (p *ruleParser) protocol(name string) {
	n, ok := protocolNumber(name)
	switch {
	case name == "all" || name == "0":
	case !ok:
		p.fail("unknown protocol %s", name)
	default:
		p.test(proto(n))
	}
	p.module = name
}

func (p *ruleParser) iface(exact, glob, all op.Cond, name string) {
	t, ok := interfaceTest(exact, glob, all, name, "+")
	if !ok {
		p.fail("the name %q of an interface cannot be written in a rule", name)
		return
	}
	p.test(t)
}

// interfaceTest compares an interface with a name, which may end in a wildcard.
func interfaceTest(exact, glob, all op.Cond, name, wildcard string) (rule.Test, bool) {
	base, isGlob := strings.CutSuffix(name, wildcard)
	switch {
	case name == "" || strings.ContainsAny(base, "*?[]{}\\ ,!\"#/") || base == "any" && !isGlob:
		return rule.Test{}, false
	case isGlob && base == "":
		return rule.Test{Op: all}, true
	case isGlob:
		return rule.Test{Op: glob, Name: base + "*"}, true
	}
	return rule.Test{Op: exact, Name: name}, true
}

// protocolAliases are names of /etc/protocols and of iptables that package packet does not have.
var protocolAliases = map[string]packet.Proto{"ipv6-auth": packet.ProtoAH,
	"ipv6-crypt": packet.ProtoESP, "comp": 108, "mh": 135, "ipv6": 41}

func protocolNumber(name string) (packet.Proto, bool) {
	if n, ok := number(name, 255); ok {
		return packet.Proto(n), true
	}
	name = strings.ToLower(name)
	if n, ok := protocolAliases[name]; ok {
		return n, true
	}
	return packet.ProtoNumber(name)
}
