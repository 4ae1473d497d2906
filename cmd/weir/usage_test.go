package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// TestHelpFitsATerminal: no line of the help of any command, or of their lists, has more than 80
// columns, and a line that is broken continues with a whole word.
func TestHelpFitsATerminal(t *testing.T) {
	lines := [][]string{{"help"}, {"--help"}, {"ipfw", "-h"}}
	for _, v := range commands() {
		words := strings.Fields(v.name)
		lines = append(lines, append([]string{"help"}, words...))
		switch {
		case v.name == "ipfw": // it takes ipfw's flags
		case strings.HasPrefix(v.args, "[OPTION]..."): // weir-store's: TestHelpFitsATerminal there
		default:
			lines = append(lines, append(words, "--help"), []string{words[0], "--help"})
		}
	}
	for _, line := range lines {
		var out, stderr bytes.Buffer
		code := run(t.Context(), line, strings.NewReader(""), &out, &stderr)
		if code != 0 || !strings.HasPrefix(out.String(), "usage: ") {
			t.Fatalf("weir %q: status %d\n%s%s", line, code, &out, &stderr)
		}
		for l := range strings.Lines(out.String()) {
			if n := len(strings.TrimSuffix(l, "\n")); n > helpWidth {
				t.Errorf("weir %q: %d columns: %s", line, n, l)
			}
		}
	}
}

// TestHelpIsAligned: the texts of commands and of flags begin in one column each. That of the flags
// is in the left half, although some flags are wider.
func TestHelpIsAligned(t *testing.T) {
	lines := [][]string{{"help"}, {"help", "fw"}, {"help", "cluster"}}
	for _, v := range commands() {
		if v.name != "ipfw" && !strings.HasPrefix(v.args, "[OPTION]...") {
			lines = append(lines, append([]string{"help"}, strings.Fields(v.name)...))
		}
	}
	begins := regexp.MustCompile(`^  +(-\w, )?(-?-?\w+( \w+)?)(=\w+)?( [A-Z]\S*)?( +)\S`)
	for _, line := range lines {
		var out, stderr bytes.Buffer
		if code := run(t.Context(), line, strings.NewReader(""), &out, &stderr); code != 0 {
			t.Fatalf("weir %q: status %d, %s", line, code, &stderr)
		}
		columns := map[int]bool{}
		for l := range strings.Lines(out.String()) {
			if at := begins.FindStringSubmatchIndex(l); at != nil && at[13]-at[12] > 1 {
				columns[at[13]] = true
			}
		}
		for n := range columns {
			if len(columns) != 1 || n > helpWidth/2 {
				t.Errorf("weir %q: columns %v\n%s", line, columns, &out)
			}
		}
	}
}

// TestHelpHasParts: each heading of the list of commands stands above a command that there is, and
// the list of a group has none.
func TestHelpHasParts(t *testing.T) {
	for _, line := range [][]string{{"help"}, {"help", "fw"}} {
		var out, stderr bytes.Buffer
		if code := run(t.Context(), line, strings.NewReader(""), &out, &stderr); code != 0 {
			t.Fatalf("weir %q: status %d, %s", line, code, &stderr)
		}
		for command, heading := range headings {
			want := len(line) == 1
			if strings.Contains(out.String(), "\n\n"+heading+"\n  "+command+" ") != want {
				t.Errorf("weir %q: heading %q above %s: want %v\n%s", line, heading, command, want,
					&out)
			}
		}
	}
}

// TestUsageIsBroken: a usage is broken between its parts only.
func TestUsageIsBroken(t *testing.T) {
	for _, c := range []struct{ usage, want string }{
		{"weir down [--keep]", "usage: weir down [--keep]"},
		{"weir x [--one TWO THREE]... [--four FIVE SIX SEVEN EIGHT NINE] [--ten ELEVEN TWELVE]",
			"usage: weir x [--one TWO THREE]... [--four FIVE SIX SEVEN EIGHT NINE]\n" +
				"           [--ten ELEVEN TWELVE]"},
		{"weir x " + strings.Repeat("A", 60) + " --key KEY NAME",
			"usage: weir x " + strings.Repeat("A", 60) + "\n           --key KEY NAME"},
		{"weir x " + strings.Repeat("A", 90) + " B", "usage: weir x\n           " +
			strings.Repeat("A", 90) + "\n           B"},
	} {
		if got := brokenUsage(c.usage); got != c.want {
			t.Errorf("%s\n got\n%s\n want\n%s", c.usage, got, c.want)
		}
	}
}

// TestUsageErrorsAreEscaped: a word of the command line, which a script may have from outside, does
// not reach the terminal as it is.
func TestUsageErrorsAreEscaped(t *testing.T) {
	for _, line := range [][]string{{"status", "--\x1b[2J"}, {"fw", "show", "\x1b[2J"},
		{"pod", "label", "web", "\x1b[2J=", "-\x1b[2J"}, {"\x1b[2J"}} {
		var out, stderr bytes.Buffer
		if code := run(t.Context(), line, strings.NewReader(""), &out, &stderr); code != 2 {
			t.Errorf("weir %q: status %d", line, code)
		}
		if text := out.String() + stderr.String(); strings.Contains(text, "\x1b") {
			t.Errorf("weir %q: %q", line, text)
		}
	}
}

// TestFlagsThatAreNoNumbers: the error is about the flag, and not about Go's functions.
func TestFlagsThatAreNoNumbers(t *testing.T) {
	for _, line := range []string{"service add --port -1 web 10.200.0.10:80 app=web",
		"pod attach --mtu x web", "flow capture -w - -c 99999999999999999999"} {
		var out, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(line), strings.NewReader(""), &out, &stderr)
		if code != 2 || strings.Contains(stderr.String(), "strconv") ||
			!strings.Contains(stderr.String(), ": not a whole number in its range\n") {
			t.Errorf("weir %s: status %d:\n%s", line, code, &stderr)
		}
	}
}

// TestNothingIsIgnored: words behind a command that shows something are refused, without a node.
func TestNothingIsIgnored(t *testing.T) {
	for line, want := range map[string]string{
		"fw nat show config now": `unexpected "now"`,
		"fw nat show 5":          `unexpected "5"`,
		"fw pipe show 5":         `unexpected "5"`,
		"fw set show 5":          `unexpected "5"`,
	} {
		var out, stderr bytes.Buffer
		args := append([]string{"--root", t.TempDir()}, strings.Fields(line)...)
		code := run(t.Context(), args, strings.NewReader(""), &out, &stderr)
		if code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("weir %s: status %d, want 2 and %s:\n%s", line, code, want, &stderr)
		}
	}
}
