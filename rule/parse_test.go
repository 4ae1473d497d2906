package rule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/program"
)

func TestNames(t *testing.T) {
	var n Names
	if err := n.ReadServices(strings.NewReader("# services\nfoo 4711/tcp bar # x\nfoo 4712/udp\n" +
		"http 8000/tcp\nbroken\nworse x/tcp\nbig 70000/tcp\n")); err != nil {
		t.Fatal(err)
	}
	if err := n.ReadProtocols(strings.NewReader("quux 200 QUUX\ntcp 66\nbig 256\n")); err != nil {
		t.Fatal(err)
	}
	r, err := ParseRule("allow quux from any foo to any bar,http,foo-4800", &n)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.String(), "allow 200 from any 4711 to any 4711,80,4711-4800"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	for _, text := range []string{"allow big from any to any", "allow ip from any to any big",
		"allow ip from any to any worse", "allow tcp from any to any foo",
		"allow quux from any to any"} {
		names := &n
		if strings.Contains(text, "foo") || strings.Contains(text, "quux") {
			names = nil
		}
		if _, err := ParseRule(text, names); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// TestProtocolOption: behind proto, ipv6 is a protocol in a packet of either version, as in ipfw;
// before "from" it is the version.
func TestProtocolOption(t *testing.T) {
	const rule = "allow ip from any to any "
	for text, want := range map[string]string{
		rule + "proto ipv6":                  rule + "proto 41",
		rule + "not proto ipv6":              rule + "not proto 41",
		rule + "{ proto ipv6 or in }":        rule + "{ proto 41 or in }",
		rule + "proto ip6 proto ipencap":     rule + "ipversion 6 proto ipencap",
		rule + "ipv6":                        rule + "ipversion 6",
		"allow ipv6 from any to any proto 4": "allow ip6 from any to any proto ipencap",
	} {
		r, err := ParseRule(text, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := r.String(); got != want {
			t.Errorf("%s: %q, not %q", text, got, want)
		}
	}
	_, err := ParseRule(rule+"proto ipv4", nil)
	if err == nil || !strings.Contains(err.Error(), `unknown protocol "ipv4"`) {
		t.Errorf("proto ipv4: %v", err)
	}
}

// TestSystemServices checks that the built-in ports are those of the system's own list, where there
// is one.
func TestSystemServices(t *testing.T) {
	f, err := os.Open("/etc/services")
	if err != nil {
		t.Skip("no /etc/services here: ", err)
	}
	defer f.Close()
	var n Names
	if err := n.ReadServices(f); err != nil {
		t.Fatal(err)
	}
	known := 0
	for name, port := range services {
		theirs, ok := n.services[name]
		if !ok {
			continue
		}
		known++
		if theirs != port {
			t.Errorf("%s is %d, here %d", name, theirs, port)
		}
	}
	t.Logf("%d of %d names are in /etc/services", known, len(services))
}

func TestParseLine(t *testing.T) {
	c, err := ParseLine("add 100 allow tcp from { 10.0.0.1 or me } to any 80, 443 // two words "+
		"more",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Rule.String(),
		"100 allow tcp from { 10.0.0.1 or me } to any 80,443 // two words more"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	_, err = ParseLine("add alow ip", nil)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	want := "column 5: unknown action \"alow\"\n    add alow ip\n        ^^^^\n" +
		"    hint: did you mean \"allow\"?\n"
	if e.Report() != want {
		t.Errorf("%q", e.Report())
	}
	if _, err := ParseLine("add allow ip from any to any\nflush", nil); err == nil {
		t.Error("two lines were taken as one")
	}
	if _, err := ParseRule("flush", nil); err == nil {
		t.Error("flush was taken as a rule")
	}
}

// TestApply runs commands one after the other against one rule set, as a running node does.
func TestApply(t *testing.T) {
	s := new(Ruleset)
	for _, step := range []struct{ line, numbers, err string }{
		{"add allow ip from any to any", "100", ""},
		{"add 50 count ip from any to any", "50 100", ""},
		{"add set 31 count ip from any to any", "50 100 200/31", ""},
		{"add 65500 set 2 count ip from any to any", "50 100 200/31 65500/2", ""},
		{"add count ip from any to any", "50 100 200/31 65500/2 65500", ""},
		{"delete 50 60", "100 200/31 65500/2 65500", "there is no rule 60"},
		{"delete set 3", "100 200/31 65500/2 65500", ""},
		{"set swap 0 2", "100/2 200/31 65500 65500/2", ""},
		{"set move rule 200 to 4", "100/2 200/4 65500 65500/2", ""},
		{"set move rule 201 to 4", "100/2 200/4 65500 65500/2", "there is no rule 201"},
		{"set move 4 to 31", "100/2 200/31 65500 65500/2", ""},
		{"set disable 2", "200/31 65500", ""},
		{"set enable 2 disable 0", "100/2 200/31 65500/2", ""},
		{"set enable 0", "100/2 200/31 65500 65500/2", ""},
		{"delete set 2", "200/31 65500", ""},
		{"flush", "200/31", ""},
		{"delete 1-65534", "", ""},
		{"table t add 10.0.0.0/8 1 10.0.0.0/9", "", ""},
		{"table t create", "", "table t exists already"},
		{"table t create missing", "", ""},
		{"table t delete 10.0.0.0/9 10.0.0.0/10", "", "table t has no member 10.0.0.0/10"},
		{"table u flush", "", "there is no table u"},
		{"table u delete 10.0.0.0/8", "", "there is no table u"},
	} {
		c, err := ParseLine(step.line, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Apply(s)
		if got := errText(err); got != step.err {
			t.Errorf("%s: error %q, not %q", step.line, got, step.err)
		}
		if got := numbers(s); got != step.numbers {
			t.Errorf("%s: rules %q, not %q", step.line, got, step.numbers)
		}
	}
	if got := s.Tables["t"].Entries(); len(got) != 1 || got[0].Value != 1 {
		t.Errorf("table t holds %v", got)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func numbers(s *Ruleset) string {
	var words []string
	for _, r := range s.Active() {
		word := Range{uint32(r.Number), uint32(r.Number)}.String()
		if r.Set != 0 {
			word += "/" + Range{uint32(r.Set), uint32(r.Set)}.String()
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestClone checks that a version that was kept does not change with the rule set.
func TestClone(t *testing.T) {
	s := ruleset(t,
		"add 10 allow ip from any to any\nadd 20 set 3 deny ip from any to any\n"+
			"table t add 10.0.0.1\nset disable 5\n")
	want := dumpRuleset(s)
	kept := s.Clone()
	for _, line := range []string{"set swap 0 3", "set move 3 to 7", "delete 10",
		"add 5 count ip from any to any", "table t add 10.0.0.2", "table u create", "flush",
		"set enable 5"} {
		c, err := ParseLine(line, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(s); err != nil {
			t.Fatal(err)
		}
		if got := dumpRuleset(kept); got != want {
			t.Fatalf("%s changed the clone: %s", line, firstDifference(got, want))
		}
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"eth*", "eth0", true}, {"eth*", "eth", true}, {"eth*", "veth0", false}, {"*", "", true},
		{"*", "x", true}, {"?", "", false}, {"?", "x", true},
		{"*0", "eth0", true}, {"*0", "eth01", false}, {"*0*1", "a0b1", true},
		{"*0*1", "a0b", false}, {"a*b*c", "aXbbYc", true}, {"a*b*c", "aXcYb", false},
		{"pod:*", "pod:a", true}, {"pod:*", "pods", false}, {"e??0", "eth0", true}, {"", "", true},
		{"", "a", false}, {"em[0-9]", "em7", true}, {"em[0-9]", "emx", false},
		{"em[0-9]", "em10", false}, {"em[!0]", "em1", true}, {"em[^0]", "em0", false},
		{"lan[1-9]??", "lan1ab", true}, {"lan[1-9]??", "lan0ab", false}, {"*[02]", "eth12", true},
		{"*[02]", "eth1", false}, {"[a-]", "-", true}, {"x[", "x[", false}, {"x[]", "x", false},
		{"[!]", "a", false},
	} {
		if got := Glob(c.pattern, c.name); got != c.want {
			t.Errorf("Glob(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}

// TestMappedNeverMatches: a rule about IPv4-mapped addresses loads and matches nothing, whatever is
// beside it; one about all others matches everything.
func TestMappedNeverMatches(t *testing.T) {
	for text, want := range map[string]string{
		"deny all from ::ffff:0.0.0.0/96 to any":            "deny ip from not any to any",
		"deny all from ::ffff:10.0.0.0/104,10.0.0.1 to any": "deny ip from 10.0.0.1 to any",
		"deny all from not ::ffff:0:0/96 to any":            "deny ip from any to any",
		"deny ip from any to any not dst-ip ::ffff:0:0/96":  "deny ip from any to any",
		"deny ip from { ::ffff:0:0/96 or me } to any": "deny ip from { not any or me } to " +
			"any",
		"deny ip from { not ::ffff:0:0/96 or ::1 } to any":    "deny ip from { any or ::1 } to any",
		"deny ip from any to { ::1 or not ::ffff:a00:0/104 }": "deny ip from any to { ::1 or any }",
	} {
		r, err := ParseRule(text, nil)
		if err != nil || r.Text() != want {
			t.Errorf("%s: %v, want %s (%v)", text, r, want, err)
		}
	}
	r, err := ParseRule("deny ip from ::ffff:0.0.0.0/96 to any", nil)
	if err != nil {
		t.Fatal(err)
	}
	g := random{rand.New(rand.NewPCG(1, 1))}
	for range 100 {
		if p := g.tuple(); p.match(r) {
			t.Fatalf("%+v matches", p)
		}
	}
}

func TestErrors(t *testing.T) {
	var l Errors
	for n, want := range map[int]string{1: "f:3:4: bad", 2: "f:3:4: bad (and 1 more error)",
		3: "f:3:4: bad (and 2 more errors)", 20: "f:3:4: bad (and at least 19 more errors)"} {
		for l = nil; len(l) < n; {
			l = append(l, &Error{Pos: Pos{"f", 3, 4, 5}, Msg: "bad"})
		}
		if l.Error() != want {
			t.Errorf("%d errors: %q", n, l.Error())
		}
	}
}

func TestLacks(t *testing.T) {
	p := mustCompile(t, ruleset(t,
		"add 10 allow tcp from 10.0.0.0/8 to any 80 setup keep-state\n"+
			"add 20 allow log ip from any to any verrevpath\n"))
	if err := p.Lacks(program.AllFeatures); err != nil {
		t.Error(err)
	}
	if err := p.Lacks(program.AllFeatures &^ program.HasVerRevPath); errText(err) !=
		"rule 20: this engine does "+
			"not have verrevpath" {
		t.Error(err)
	}
	less := program.AllFeatures &^ (program.HasKeepState | program.HasLog)
	if err := p.Lacks(less); errText(err) !=
		"rule 10: this "+
			"engine does not have check-state or keep-state" {
		t.Error(err)
	}
	if p.Features != program.HasKeepState|program.HasVerRevPath|program.HasLog {
		t.Errorf("features %#x", p.Features)
	}
}

// TestHintsOfParts: the hint is about the mistake, not about what else could stand at its place.
func TestHintsOfParts(t *testing.T) {
	for line, want := range map[string]string{
		"add allow tcp or udp from any to any": "1:15: expected \"from\", found \"or\"; { A or B }",
		"add allow ip from me or 10.0.0.1 to any": "1:22: expected \"to\", found \"or\"; " +
			"{ A or B }",
		"add allow ip from any to any keep-state :\u00fcml": "1:42: flow name cannot contain " +
			"\"\u00fc\"; letters, digits and _ - .",
	} {
		_, err := ParseFile("f", line+"\n", nil)
		var e *Error
		if !errors.As(err, &e) || fmt.Sprintf("%d:%d: %s; %s", e.Pos.Line, e.Pos.Col, e.Msg,
			e.Hint) != want {
			t.Errorf("%s: %v, hint %q, want %s", line, err, e.Hint, want)
		}
	}
}

// TestRefused checks that every word of ipfw that is not taken is refused by name and with its
// reason.
func TestRefused(t *testing.T) {
	check := func(line, word, why string) {
		t.Helper()
		_, err := ParseLine(line, nil)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Msg, `"`+word+`"`) || e.Hint != why {
			t.Errorf("%q: %v, hint %q", line, err, e.Hint)
		}
	}
	for word, why := range refusedActions {
		check("add "+word+" ip from any to any", word, why)
	}
	for word, why := range refusedOptions {
		check("add allow ip from any to any "+word+" 1", word, why)
		check("add allow ip from any to any { in or not "+word+" 1 }", word, why)
	}
	for word, why := range refusedCommands {
		check(word+" 1 config", word, why)
	}
}

// TestZero: the command carries the numbers whose counters it is about; a rule file may have it.
func TestZero(t *testing.T) {
	for line, want := range map[string]string{"zero": "[]", "zero 5 65535": "[5 65535]",
		"ipfw -q zero 7": "[7]"} {
		c, err := ParseLine(line, nil)
		if err != nil || c.Kind != CommandZero || fmt.Sprint(c.Numbers) != want {
			t.Errorf("%s: %+v, %v", line, c, err)
		}
	}
	for _, line := range []string{"", "# text", "resetlog 5"} {
		if c, err := ParseLine(line, nil); err != nil || c.Kind != CommandNone {
			t.Errorf("%q: %+v, %v", line, c, err)
		}
	}
	if c, err := ParseLine("zero 5 x", nil); err == nil {
		t.Errorf("got %+v", c)
	}
}
