package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestIPFWLine: command lines are cut as ipfw(8) cuts them.
func TestIPFWLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-q", "-f", "flush"}, "qf flush"},
		{[]string{"-qf", "flush"}, "qf flush"},
		{[]string{"-q", "add", "100", "allow", "ip", "from", "any", "to", "any", "-f"},
			"q add 100 allow ip from any to any -f"},
		{[]string{"100", "add", "deny", "ip", "from", "any", "to", "any"},
			" add 100 deny ip from any to any"},
		{[]string{"add allow tcp from any to me 22   # ssh"}, " add allow tcp from any to me 22"},
		{[]string{"add", "allow", "tcp", "from", "any", "to", "me", "22,", "80"},
			" add allow tcp from any to me 22,80"},
		{[]string{"-at", "list"}, "at list"},
		{[]string{"-d", "-S", "show", "100-200"}, "dS show 100-200"},
		{[]string{"set", "5", "delete", "100"}, " set 5 delete 100"},
		{[]string{"set", "disable", "5"}, " set disable 5"},
		{[]string{"-s", "1", "-e", "l"}, " l"},
		{[]string{"-q", "/dev/null"}, "q /dev/null"},
		{[]string{"-n", "-f", "/dev/null"}, "fn /dev/null"},
		{nil, "h"},
		{[]string{"-h"}, "h"},
		{[]string{"-x", "list"}, "illegal option -- x"},
		{[]string{"-p", "m4", "/dev/null"}, "-p: preprocessors are not run"},
		{[]string{"add", "/dev/null"}, "extraneous filename arguments add"},
		{[]string{"-q"}, "bad arguments, for usage summary ``ipfw''"},
		{[]string{"# nothing"}, "bad arguments, for usage summary ``ipfw''"},
		{[]string{"set", "32", "show"}, "invalid set number 32"},
		{[]string{"set", "3"}, "missing command"},
		{[]string{"set", "0x3", "show"}, "invalid set number 0x3"},
		{[]string{"set", "010", "show"}, " set 10 show"},
		{[]string{"0x64", "add", "deny", "ip", "from", "any", "to", "any"},
			" add 0x64 deny ip from any to any"},
	} {
		l, err := parseIPFW(c.args)
		if got := describe(l, err); got != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
	if _, err := parseIPFW([]string{"/no/such/file"}); err == nil {
		t.Error("a file that is not there is taken")
	}
}

func describe(l *ipfwLine, err error) string {
	if err != nil {
		return err.Error()
	}
	letters := ""
	for _, f := range []struct {
		on     bool
		letter string
	}{{l.counters, "a"}, {l.times, "t"}, {l.dynamic, "d"}, {l.set, "S"}, {l.quiet, "q"},
		{l.force, "f"}, {l.test, "n"}} {
		if f.on {
			letters += f.letter
		}
	}
	switch {
	case l.help:
		return "h"
	case l.file != "":
		return letters + " " + l.file
	}
	return letters + " " + l.line()
}

// TestIPFWAbbreviations: the first command of ipfw's order that begins with a word is meant.
func TestIPFWAbbreviations(t *testing.T) {
	for word, want := range map[string]string{"a": "add", "l": "list", "sh": "show",
		"del": "delete",
		"z":   "zero", "t": "table", "set": "set", "flu": "flush", "fl": "flowset", "s": "sched",
		"r": "resetlog", "x": "", "lists": ""} {
		l := &ipfwLine{words: []string{word}}
		if got, _ := l.expand(); got != want {
			t.Errorf("%s is %q, want %q", word, got, want)
		}
	}
}

// TestIPFWFlagsAreItsOwn: the flags of ipfw's command line do not reach weir's, also in front of a
// command of weir fw.
func TestIPFWFlagsAreItsOwn(t *testing.T) {
	for line, want := range map[string]string{
		"ipfw -q -f flush":                  "ipfw -- -q -f flush",
		"ipfw":                              "ipfw --",
		"fw -q -f flush":                    "ipfw -- -q -f flush",
		"--root /r fw -at list":             "--root /r ipfw -- -at list",
		"--root=/r --bpffs /b ipfw -a list": "--root=/r --bpffs /b ipfw -- -a list",
		"fw list -a":                        "fw list -a",
		"fw -h":                             "fw -h",
		"fw --root /r list":                 "fw --root /r list",
		"fw -x list":                        "fw -x list",
		"fw add 1 allow ip from any to any": "fw add 1 allow ip from any to any",
		"flow watch -f rules":               "flow watch -f rules",
		"--root /r status":                  "--root /r status",
		"--root":                            "--root",
		"fw -":                              "fw -",
	} {
		if got := strings.Join(protectIPFW(strings.Fields(line)), " "); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestIPFWRefuses: what Weir does not have is refused by name, with ipfw's exit statuses, without a
// node; -n checks and changes nothing.
func TestIPFWRefuses(t *testing.T) {
	for _, c := range []struct {
		line, text string
		code       int
	}{
		{"pipe 1 config delay 50ms", "netem", exUsage},
		{"queue 1 config pipe 1 weight 5", "tc shapes", exUsage},
		{"-n pipe 1 config bw 1Mbit/s", "", 0},
		{"-n pipe show", "", 0},
		{"pipe show", "no node", exUnavailable},
		{"nat 1 config if em0 reverse", "the other side", exUsage},
		{"-n nat 1 config if em0", "", 0},
		{"-n nat show", "", 0},
		{"nat show config", "no node", exUnavailable},
		{"resetlog", "resetlog", exUsage},
		{"sysctl", "bad command", exUsage},
		{"internal iflist", "FreeBSD", exUsage},
		{"disable firewall", "weir down", exUsage},
		{"add allow tpc from any to any", "^^^", exUsage},
		{"-n add 100 allow tcp from any to me 22 keep-state",
			"00100 allow tcp from any to me 22 keep-state :default", 0},
		{"-n -q add 100 allow ip from any to any", "", 0},
		{"-n table 1 add 10.0.0.1", "", 0},
		{"-n disable one_pass", "", 0},
		{"disable verbose", "", 0},
		{"flush", "ipfw -f flush", exUsage},
		{"table 1", "table needs name and command", exUsage},
		{"table 1 l x", "ambiguous", exUsage},
		{"zero ten", "^^^", exUsage},
		{"list", "no node", exUnavailable},
		{"show ten", "invalid rule number: ten", exUnavailable},
		{"show 0x64", "invalid rule number: 0x64", exUnavailable},
		{"zero 0x64", "a rule number is decimal", exUsage},
		{"delete 0x64", "a rule number is decimal", exUsage},
		{"0x64 add allow ip from any to any", "a rule number is decimal", exUsage},
		{"-n add 00100 allow tcp from any to me 0x50,0120", "00100 allow tcp from any to me 80", 0},
		{"del 100", "DEPRECATED: 'del' matched 'delete'", exUnavailable},
		{"-h", "usage: ipfw", 0},
	} {
		var out strings.Builder
		args := slices.Concat([]string{"--root", t.TempDir(), "ipfw"}, strings.Fields(c.line))
		code := run(t.Context(), args, strings.NewReader(""), &out, &out)
		if code != c.code || !strings.Contains(out.String(), c.text) ||
			c.text == "" && out.Len() > 0 {
			t.Errorf("%s: status %d, want %d and %q:\n%s", c.line, code, c.code, c.text,
				out.String())
		}
	}
	err := error(statusError(exUsage))
	if status := statusError(0); !errors.As(err, &status) ||
		fmt.Sprint(status) != "exit status 64" {
		t.Errorf("%v", err)
	}
}
