package test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// flushes are ways to give the command, with what comes from the input and whether that is a
// terminal.
var flushes = []struct {
	line, input string
	terminal    bool
	flushed     bool
	code        int
	says        string
}{
	{line: "fw flush", code: 1, says: "hint: weir fw flush -f"},
	{line: "fw flush", input: "y\n", code: 1, says: "hint: weir fw flush -f"},
	{line: "fw flush -q", input: "yes\n", code: 1, says: "hint: weir fw flush -f"},
	{line: "fw flush -f", flushed: true},
	{line: "fw flush -fq", flushed: true},
	{line: "fw flush", input: "n\n", terminal: true, code: 1, says: "nothing was changed"},
	{line: "fw flush", input: "\n", terminal: true, code: 1, says: "nothing was changed"},
	{line: "fw flush", input: "\x04", terminal: true, code: 1, says: "nothing was changed"},
	{line: "fw flush", input: "yesterday\n", terminal: true, code: 1, says: "nothing was changed"},
	{line: "fw flush", input: "y\n", terminal: true, flushed: true, says: "[y/N]"},
	{line: "ipfw flush", code: 64, says: "hint: ipfw -f flush"},
	{line: "ipfw flush", input: "y\n", code: 64, says: "hint: ipfw -f flush"},
	{line: "ipfw -n flush", says: ""},
	{line: "ipfw -f flush", flushed: true, says: "Flushed all rules."},
	{line: "ipfw -q flush", flushed: true},
	{line: "fw -f flush", flushed: true, says: "Flushed all rules."},
	{line: "fw -q flush", flushed: true},
	{line: "ipfw flush", input: "n\n", terminal: true, says: "[yn]"},
	{line: "ipfw flush", input: "\x04", terminal: true, says: "[yn]"},
	{line: "ipfw flush", input: "maybe\nY\n", terminal: true, flushed: true,
		says: "[yn] Are you sure? [yn]"},
}

// TestFlushAsks: without -f, all rules go only when someone at a terminal says so; ipfw's command
// line takes -q for that, too. Else nothing changes, and the error says how it is meant.
func TestFlushAsks(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0")
	for _, c := range flushes {
		name := fmt.Sprintf("weir %s, input %q, terminal %v", c.line, c.input, c.terminal)
		p.weir("fw", "load", p.file("rules", "add 100 count ip from any to any\n"))
		cmd := p.server.Command(weir, append([]string{"--root", p.root, "--bpffs", p.bpffs},
			strings.Fields(c.line)...)...)
		cmd.Stdin = strings.NewReader(c.input)
		if c.terminal {
			cmd.Stdin = typed(t, c.input)
		}
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != c.code ||
			!strings.Contains(string(bytes.ReplaceAll(out, []byte("\r"), nil)), c.says) {
			t.Errorf("%s: status %d, want %d\n%s\nwant\n%s", name, code, c.code, out, c.says)
		}
		if strings.HasSuffix(c.line, "q") && c.flushed && len(out) > 0 {
			t.Errorf("%s prints %q", name, out)
		}
		list := p.weir("fw", "list")
		if flushed := !strings.Contains(list, "00100 count"); flushed != c.flushed {
			t.Errorf("%s: afterwards the rules are\n%s", name, list)
		}
	}
}

// typed returns a terminal on which someone has typed.
func typed(t *testing.T, text string) *os.File {
	t.Helper()
	screen, terminal := nstest.Terminal(t)
	if _, err := screen.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return terminal
}
