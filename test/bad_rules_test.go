package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// badLines are mistakes, each the third line of an otherwise good file, with the column that the
// error has to name.
var badLines = []struct {
	line   string
	column int
}{
	{"add 100 alow ip from any to any", 9},
	{"dad 100 allow ip from any to any", 1},
	{"add 65535 allow ip from any to any", 5},
	{"add 70000 allow ip from any to any", 5},
	{"add 100 set 32 allow ip from any to any", 13},
	{"add 100 prob 1.5 allow ip from any to any", 14},
	{"add 100 allow tpc from any to any", 15},
	{"add 100 allow 256 from any to any", 15},
	{"add 100 allow ip form any to any", 18},
	{"add 100 allow ip from any", 26},
	{"add 100 allow ip from to any", 23},
	{"add 100 allow ip from 10.0.0.256 to any", 23},
	{"add 100 allow ip from 10.0.0.0/33 to any", 32},
	{"add 100 allow ip from fd00::/129 to any", 30},
	{"add 100 allow ip from fd00:::1 to any", 23},
	{"add 100 allow ip from table(x to any", 23},
	{"add 100 allow tcp from any 70000 to any", 28},
	{"add 100 allow tcp from any 90-80 to any", 28},
	{"add 100 allow tcp from any to any nosuchservice", 35},
	{"add 100 allow tcp from any to any setpu", 35},
	{"add 100 allow tcp from any to any tcpflags sin", 44},
	{"add 100 allow icmp from any to any icmptypes 256", 46},
	{"add 100 allow ip from any to any via", 37},
	{"add 100 allow tcp from any to any limit src-addr", 49},
	{"add 100 allow tcp from any to any limit src-addr 0", 50},
	{"add 100 skipto ip from any to any", 16},
	{"add 100 unreach nowhere ip from any to any", 17},
	{"add 100 divert 5000 ip from any to any", 9},
	{"add 100 allow ip from any to any jail 5", 34},
	{"add 100 allow { tcp or udp from any to any", 28},
	{"table x add 10.0.0.0/40", 22},
	{"table x add", 12},
	{"set disable 31", 13},
	{"delete", 7},
	{"shove", 1},
}

// TestBadFiles: a bad file changes nothing in a running node, and the error has file, line, column,
// the line itself, a caret below the place, and mostly a hint. check and load print the same.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", webRules(t))
	rules, saved := p.weir("fw", "show", "-S"), savedFile(t, p)
	hints := 0
	for i, c := range badLines {
		file := p.file(fmt.Sprintf("bad%d.rules", i),
			"add 50 count ip from any to any\ntable x create missing\n"+c.line+
				"\nadd 60 allow ip from any to any\n")
		for _, command := range []string{"check", "load"} {
			out, stderr, err := p.try("fw", command, file)
			place := regexp.QuoteMeta(fmt.Sprintf("%s:3:%d: ", file, c.column))
			form := regexp.MustCompile(`^` + place + `[^\n]+\n    ` + regexp.QuoteMeta(c.line) +
				`\n    ` + strings.Repeat(" ", c.column-1) + `\^+\n(    hint: [^\n]+\n)?` +
				`weir: fw ` + command + `: ` + place + `[^\n]+\n$`)
			if err == nil || out != "" || !form.MatchString(stderr) {
				t.Errorf("%s %q (column %d): %v\n%s%s", command, c.line, c.column, err, out, stderr)
			}
			hints += strings.Count(stderr, "\n    hint: ")
		}
	}
	if hints < len(badLines) {
		t.Errorf("only %d hints for %d mistakes, printed twice each", hints, len(badLines))
	}
	if now := p.weir("fw", "show", "-S"); now != rules {
		t.Errorf("the rules are now\n%sand were\n%s", now, rules)
	}
	if now := savedFile(t, p); now != saved {
		t.Errorf("the saved rules are now\n%sand were\n%s", now, saved)
	}
}

func savedFile(t *testing.T, p *pair) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.root, "var/lib/weir/rules.saved"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestIPFWFile: a rule file of an ipfw user, with every word that Weir keeps, loads unchanged.
func TestIPFWFile(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	file, err := filepath.Abs("../examples/ipfw.rules")
	if err != nil {
		t.Fatal(err)
	}
	p.start("--iface", "eth0", "--rules", file)
	if n := strings.Count(p.weir("fw", "list", "-S"), "\n"); n < 40 {
		t.Errorf("%d rules", n)
	}
	// What was saved is the same rule set: a restart lists the same.
	list := p.weir("fw", "list", "-S") + p.weir("fw", "table", "all", "list")
	p.stop()
	p.start("--iface", "eth0", "--rules", file)
	if again := p.weir("fw", "list", "-S") + p.weir("fw", "table", "all", "list"); again != list {
		t.Errorf("after a restart\n%sbefore\n%s", again, list)
	}
}
