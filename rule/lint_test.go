package rule

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/rule/op"
)

// lintCases are rules with the findings about them.
var lintCases = []struct{ name, rules, want string }{
	{"nothing", "allow tcp from any to any 80\ndeny ip from any to any", ""},
	{"shadowed", "allow ip from 10.0.0.0/8 to any\nallow tcp from 10.1.0.0/16 to any 80",
		"rule 200 is never reached: rule 100 takes every packet that it would match"},
	{"rate", "allow ip from any to any limit-rate 1/s\ndeny tcp from any to any",
		"rule 200 is never reached: rule 100 takes every packet that it would match, and does " +
			"the opposite"},
	{"rate leaves to the next", "allow ip from any to any limit-rate 1/s exceed next\n" +
		"deny tcp from any to any", ""},
	{"opposite", "deny tcp from any to any\nallow tcp from any to me 80 setup keep-state",
		"rule 200 is never reached: rule 100 takes every packet that it would match, and does " +
			"the opposite"},
	{"duplicate", "pass tcp from any to any http\nallow tcp from any to any 80 // again",
		"rule 200 is never reached: it is a duplicate of rule 100"},
	{"covered", "allow tcp from any to any 1-100\nallow tcp from any to any 101-65535\n" +
		"allow tcp from any to any 50-150,0\ndeny tcp from any to any 5-200",
		"rule 400 is never reached: the rules 100, 200 together take every packet that it " +
			"would match, and does the opposite"},
	{"families",
		"allow ip4 from any to any\nallow ip6 from any to any\ndeny udp from any to any",
		"rule 300 is never reached: the rules 100, 200 together take every packet that it " +
			"would match, and does the opposite"},
	{"never in out", "allow ip from any to any in out",
		"rule 100 never matches: its conditions exclude each other"},
	{"never mapped", "deny ip from ::ffff:0.0.0.0/96 to any",
		"rule 100 never matches: its conditions exclude each other"},
	{"never ports of icmp", "allow icmp from any to any 80",
		"rule 100 never matches: its conditions exclude each other"},
	{"never families", "allow ip from 10.0.0.1 to 2001:db8::1",
		"rule 100 never matches: its conditions exclude each other"},
	{"never flags", "allow tcp from any to any setup established tcpflags !rst",
		"rule 100 never matches: its conditions exclude each other"},
	{"never ttl", "allow ip from any to any ipttl 1-5 not ipttl 0-9",
		"rule 100 never matches: its conditions exclude each other"},
	{"never iface", "allow ip from any to any via eth0 not via eth0",
		"rule 100 never matches: its conditions exclude each other"},
	{"never icmp6 type", "allow icmp from any to any icmp6types 128",
		"rule 100 never matches: its conditions exclude each other"},
	{"never frag", "allow tcp from any to any 80 frag",
		"rule 100 never matches: its conditions exclude each other"},
	{"never tos of v6", "allow ip6 from any to any iptos lowdelay",
		"rule 100 never matches: its conditions exclude each other"},
	{"frag is asked apart", "deny ip from any to any\nallow ip from any to any frag", ""},
	{"frag after frag", "deny ip from any to any frag\nallow udp from any to any frag",
		"rule 200 is never reached: rule 100 takes every packet that it would match, and does " +
			"the opposite"},
	{"unknown", "allow ip from any to me\nallow tcp from any to any 80\n" +
		"allow tcp from any to me 80 in",
		"rule 300 is never reached: rule 100 takes every packet that it would match"},
	{"unknown or",
		"allow ip from any to any { via eth0 or via eth1 }\n" +
			"deny tcp from any to any via eth1 in\ndeny tcp from any to any via eth2",
		"rule 200 is never reached: rule 100 takes every packet that it would match, and does " +
			"the opposite"},
	{"prob", "prob 0.9 allow ip from any to any\nallow ip from any to any", ""},
	{"count", "count ip from any to any\nallow ip from any to any", ""},
	{"defer", "allow ip from any to any record-state defer-action\nallow ip from any to any",
		""},
	{"keep-state decides", "allow tcp from any to any keep-state\nallow tcp from any to any 80",
		"rule 200 is never reached: rule 100 takes every packet that it would match"},
	{"skipto past",
		"10 skipto 100 ip from any to any\n20 allow tcp from any to any\n" +
			"100 deny ip from any to any",
		"rule 20 is never reached: skipto leads past it (10)"},
	{"tag on the way",
		"10 skipto 100 ip from any to any not tagged 5\n50 deny ip from any to any\n" +
			"100 count tag 5 ip from any to any\n" +
			"150 allow tcp from any to me 22 in tagged 5", ""},
	{"no tag on the way",
		"10 skipto 100 ip from any to any not tagged 5\n50 deny ip from any to any\n" +
			"150 allow tcp from any to me 22 in tagged 5",
		"rule 150 is never reached: rule 50 takes every packet that it would match, " +
			"and does the opposite"},
	{"skipto some",
		"10 skipto 100 tcp from any to any\n20 allow ip from any to any\n" +
			"100 deny tcp from any to any\n110 deny udp from any to any",
		"rule 110 is never reached: rule 20 takes every packet that it would match, and does " +
			"the opposite"},
	{"skipto maybe",
		"10 skipto 100 ip from any to any in via eth0\n20 allow ip from any to any\n" +
			"100 deny ip from any to any\n110 deny ip from any to any in",
		"rule 110 is never reached: the rules 20, 100 together take every packet that it " +
			"would match, and does the opposite"},
	{"call", "10 call 100 ip from any to any\n20 allow ip from any to any\n" +
		"100 count ip from any to any\n110 return ip from any to any", ""},
	{"call back",
		"10 skipto 40 ip from any to any\n20 count udp from any to any\n" +
			"30 count tcp from any to any\n40 call 30 tcp from any to any\n" +
			"50 deny ip from any to any",
		"rule 20 is never reached: skipto leads past it (10)"},
	{"states continue",
		"10 count ip from any to any in keep-state\n20 deny ip from any to any\n" +
			"30 deny ip from any to any",
		"rule 30 is never reached: it is a duplicate of rule 20"},
	{"states jump",
		"10 skipto 30 ip from any to any in keep-state\n20 allow ip from any to any\n" +
			"30 deny ip from any to any out", ""},
	{"call before a state",
		"1 call 40 ip from any to any in\n10 count ip from any to any keep-state\n" +
			"20 allow ip from any to any\n30 allow ip from any to any out\n" +
			"40 deny ip from any to any",
		"rule 30 is never reached: rule 20 takes every packet that it would match"},
	{"tags change",
		"10 allow ip from any to any tagged 1\n20 count tag 1 ip from any to any\n" +
			"30 allow ip from any to any tagged 1", ""},
	{"tags stay", "10 allow ip from any to any tagged 1\n30 allow ip from any to any tagged 1",
		"rule 30 is never reached: it is a duplicate of rule 10"},
	{"disabled",
		"10 set 1 allow ip from any to any\n20 allow ip from any to any\nset disable 1", ""},
	{"mapped", "allow ip6 from ::/0 to any\nallow ip4 from 0.0.0.0/0 to any\n" +
		"allow gre from any to any",
		"rule 300 is never reached: the rules 100, 200 together take every packet that it " +
			"would match"},
}

func TestLint(t *testing.T) {
	for _, c := range lintCases {
		findings, undecided, err := Lint(ruleset(t, c.rules))
		if err != nil || len(undecided) > 0 {
			t.Errorf("%s: %v, undecided %v", c.name, err, undecided)
		}
		var got []string
		for _, f := range findings {
			got = append(got, f.String())
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s:\n got  %s\n want %s", c.name, strings.Join(got, "\n"), c.want)
		}
	}
}

// run walks a packet through the rules without classifier and notes which rules' conditions it met.
// With states, lookups find a random rule's state now and then.
func (g random) run(rules []*Rule, p *tuple, states bool, matched []bool) {
	later := func(from int, number uint32) int {
		for from < len(rules) && uint32(rules[from].Number) < number {
			from++
		}
		return from
	}
	var stack []int
	jumps := 0
	tags := p.tags
	defer func() { p.tags = tags }()
	for pc := 0; pc < len(rules) && jumps < program.MaxJumps; {
		r := rules[pc]
		frag := slices.ContainsFunc(r.Clauses(), func(c Clause) bool {
			return slices.ContainsFunc(c, func(t Test) bool {
				return t.Op == op.CondFrag && !t.Not
			})
		})
		if p.later && !frag || r.Prob != 0 && g.chance(50) {
			pc++
			continue
		}
		hit := false
		if states && r.State.Op.LooksUp() &&
			g.chance(30) {
			if i := g.IntN(len(rules)); rules[i].State.Op > op.StateCheck {
				pc, hit = i, true
				r = rules[pc]
			}
		}
		if !hit {
			if r.Action.Op == op.ActionCheckState || !p.match(r) {
				pc++
				continue
			}
			matched[pc] = true
			if r.Rate.N != 0 && g.chance(50) { // too much
				if !r.Rate.Next {
					return
				}
				pc++
				continue
			}
			if r.Defer {
				pc++
				continue
			}
		}
		if r.Tag != 0 {
			p.tags = append(slices.Clone(p.tags), uint32(r.Tag))
		}
		jumps++
		switch r.Action.Op {
		case op.ActionSkipTo:
			pc = later(pc, max(r.Action.Arg, uint32(r.Number)+1))
		case op.ActionCall:
			if len(stack) == program.MaxCalls {
				pc++
				break
			}
			stack = append(stack, pc+1)
			pc = later(0, r.Action.Arg)
		case op.ActionReturn:
			pc++
			if n := len(stack); n > 0 {
				pc, stack = stack[n-1], stack[:n-1]
			}
		case op.ActionCount:
			jumps--
			pc++
		default:
			return
		}
	}
}

// TestLintSound checks on random rules that no rule that Lint reports is ever matched.
func TestLintSound(t *testing.T) {
	seed := testrand.Seed(t)
	g := random{rand.New(rand.NewPCG(seed, 8))}
	reported := 0
	for range 150 {
		s := new(Ruleset)
		for range 2 + g.IntN(12) {
			r := g.rule()
			if g.chance(40) { // wide rules shadow others
				r.Src, r.SrcPort, r.DstPort, r.Options = nil, nil, nil,
					r.Options[:min(len(r.Options), 1)]
			}
			if g.chance(70) {
				r.Proto, r.Dst, r.Prob = nil, nil, 0
			}
			r.Set = 0
			s.Add(r)
			if g.chance(20) {
				s.Add(r)
			}
		}
		findings, _, err := Lint(s)
		if err != nil {
			t.Fatal(err)
		}
		reported += len(findings)
		matched := make([]bool, len(s.Rules))
		for range 1000 {
			g.run(s.Rules, g.tuple(), true, matched)
		}
		for _, f := range findings {
			for slot, r := range s.Rules {
				if r == f.Rule && matched[slot] && slices.Index(s.Rules, r) == slot &&
					countRule(s.Rules, r) == 1 {
					t.Fatalf("seed %d: %s, but a packet met it:\n%s", seed, f, printRuleset(s))
				}
			}
		}
	}
	if reported < 100 {
		t.Errorf("only %d findings were checked", reported)
	}
}

func countRule(rules []*Rule, r *Rule) int {
	n := 0
	for _, o := range rules {
		if o == r {
			n++
		}
	}
	return n
}

// TestLintExact holds Lint against all packets that a small language can tell apart: a rule is
// reported if and only if none matches.
func TestLintExact(t *testing.T) {
	seed := testrand.Seed(t)
	g := random{rand.New(rand.NewPCG(seed, 9))}
	srcs := []string{"10.0.0.1", "10.0.0.200", "11.0.0.1", "192.0.2.1", "2001:db8::1",
		"2001:db8:1::1", "fe80::1"}
	prefixes := []string{"10.0.0.0/8", "10.0.0.0/25", "0.0.0.0/0", "::/0", "2001:db8::/32",
		"2001:db8::/64", "0.0.0.0/1"}
	tests := map[string][]string{
		"proto": {"ip", "ip", "tcp", "udp", "icmp", "ipv6-icmp", "ip4", "ip6", "not tcp",
			"{ tcp or udp }"},
		"port": {"", "", "", "80", "1-1023", "not 80", "443-8080", "0-65535"},
		"opt": {"", "", "", "in", "out", "setup", "established", "not established", "tcpflags fin",
			"frag", "not frag", "frag mf", "ipttl 1-64", "not ipttl 64", "icmptypes 8",
			"not icmp6types 128", "{ in or setup }"},
	}
	dead := 0
	for range 40 {
		var text strings.Builder
		for i := range 3 + g.IntN(8) {
			src := "any"
			if g.chance(40) {
				src = g.one("", "not ") + g.one(prefixes...)
			}
			action := g.one("allow", "deny", "allow", "count", "reject", "skipto "+
				g.one("3", "5", "8", "12"))
			text.WriteString(strings.Join([]string{Range{uint32(i + 1), uint32(i + 1)}.String(),
				action, g.one(tests["proto"]...), "from", src, "to any",
				g.one(tests["port"]...), g.one(tests["opt"]...), g.one(tests["opt"]...)}, " ") +
				"\n")
		}
		if strings.Contains(text.String(), "{ in or setup }") { // two dimensions: unknown to Lint
			continue
		}
		s := ruleset(t, text.String())
		matched := make([]bool, len(s.Rules))
		for _, p := range everyTuple(srcs) {
			g.run(s.Rules, p, false, matched)
		}
		findings, undecided, err := Lint(s)
		if err != nil || len(undecided) > 0 {
			t.Fatal(err, undecided)
		}
		for slot, r := range s.Rules {
			found := slices.ContainsFunc(findings, func(f Finding) bool { return f.Rule == r })
			if found == matched[slot] {
				t.Fatalf("seed %d: rule %q: reported %v, matched %v in\n%s%v", seed, r, found,
					matched[slot], text.String(), findings)
			}
			if found {
				dead++
			}
		}
	}
	if dead < 20 {
		t.Errorf("only %d rules were dead", dead)
	}
}

// everyTuple returns a packet for every way in which the tests of TestLintExact can turn out.
func everyTuple(srcs []string) []*tuple {
	var all []*tuple
	for _, text := range srcs {
		src := netip.MustParseAddr(text)
		for bits := range 4 {
			for _, ttl := range []uint32{0, 1, 64, 200} {
				base := tuple{src: src, dst: src, out: bits&1 != 0, ttl: ttl}
				if bits&2 != 0 {
					base.frag |= op.FragMF
				}
				for _, proto := range []uint32{1, 6, 17, 47, 58, 132} {
					base.proto = proto
					later := base
					later.later, later.frag = true, base.frag|op.FragOffset
					all = append(all, &later)
					for _, dport := range []uint32{0, 80, 443, 1000, 5000, 9000} {
						for variant := range uint32(16) {
							p := base
							p.dport = dport
							p.flags = variant&7 | variant&8<<1 // fin, syn, rst, ack
							p.icmp = []uint32{0, 8, 128}[variant%3]
							if all = append(all, &p); proto == 17 || proto == 47 || proto == 132 {
								break
							}
						}
						if proto != 6 && proto != 17 && proto != 132 {
							break
						}
					}
				}
			}
		}
	}
	return all
}

// TestLintLarge bounds the time for a large rule set, generously: it is a matter of seconds, not of
// hours.
func TestLintLarge(t *testing.T) {
	s := ruleset(t, mixedRules(1000)+
		"65000 deny ip from any to any\n65001 allow tcp from any to any 80\n")
	start := time.Now()
	findings, undecided, err := Lint(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("1,002 rules: %d findings, %d undecided, %v", len(findings), len(undecided),
		time.Since(start))
	if len(findings) == 0 || findings[len(findings)-1].Rule.Number != 65001 ||
		findings[len(findings)-1].Kind != Shadowed {
		t.Errorf("%v", findings)
	}
}

// TestLintMemoryIsBounded: some rules leave packets in many dimensions, and each adds to a set that
// grows. They are given up before the boxes that wait fill the memory.
func TestLintMemoryIsBounded(t *testing.T) {
	const rules = 3000
	var text strings.Builder
	for i := range rules {
		fmt.Fprintf(&text, "%d deny tcp from not 10.0.%d.%d to not 10.1.%d.%d tcpack %d\n",
			i+1, i>>8, i&0xff, i>>8, i&0xff, 2*i+1)
	}
	text.WriteString("60000 deny ip from any to any\n65000 allow ip from any to any\n")
	l, err := newLinter(ruleset(t, text.String()))
	if err != nil {
		t.Fatal(err)
	}
	tcp := l.kinds[1:2]
	w := l.walkTo(rules+1, tcp)
	if _, ok := w.run(); ok || w.size > maxSpans+10*rules {
		t.Errorf("followed to the end: %v; %d spans wait, at most %d may", ok, w.size, maxSpans)
	}
}
