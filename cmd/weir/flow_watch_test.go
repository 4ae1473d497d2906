package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// watched is a saved stream: a flow begins, and a packet is dropped.
const watched = `{"version":1,"time":"2026-11-21T14:00:00Z","kind":"start","verdict":"pass",` +
	`"rule":100,"reason":"rule","hook":"in","recv":"eth0","proto":"tcp","src":"10.0.0.5","src_port":40112,` +
	`"dst":"10.0.1.9","dst_port":80}
{"version":1,"time":"2026-11-21T14:00:01Z","kind":"drop","verdict":"drop","rule":65535,` +
	`"reason":"rule","hook":"in","recv":"eth0","proto":"tcp","src":"10.0.0.7","src_port":5353,` +
	`"dst":"10.0.1.9","dst_port":81}
`

// onTerminal runs a command with a terminal as its output, and returns what that shows.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	screen, terminal := nstest.Terminal(t)
	status := run(context.Background(), args, strings.NewReader(""), terminal, os.Stderr)
	terminal.Close()
	shown, _ := io.ReadAll(screen) // ends with EIO, since the terminal is closed
	if status != 0 {
		t.Errorf("%q ended with status %d", args, status)
	}
	return strings.ReplaceAll(string(shown), "\r\n", "\n")
}

// TestWatchOnTerminal: a terminal gets a header, and in red what is refused, unless NO_COLOR is
// set. A pipe gets lines of events alone, and so does a reader of JSON.
func TestWatchOnTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	file := filepath.Join(t.TempDir(), "saved")
	if err := os.WriteFile(file, []byte(watched), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(onTerminal(t, "flow", "watch", "--from", file), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "TIME         EVENT  PROTO SOURCE") ||
		strings.Contains(lines[1], "\x1b") || !strings.HasPrefix(lines[2], "\x1b[31m") ||
		!strings.HasSuffix(lines[2], "\x1b[0m") || !strings.Contains(lines[2], " drop   tcp ") {
		t.Errorf("the terminal shows %q", lines)
	}
	if at := strings.Index(lines[0], "EVENT"); at != strings.Index(lines[1], "start") {
		t.Errorf("the header is not over its columns:\n%s\n%s", lines[0], lines[1])
	}
	if got := onTerminal(t, "flow", "watch", "-j", "--from", file); !strings.HasPrefix(got, "{") ||
		strings.Contains(got, "\x1b") {
		t.Errorf("JSON is shown as %q", got)
	}
	t.Setenv("NO_COLOR", "1")
	if got := onTerminal(t, "flow", "watch", "--from", file); strings.Contains(got, "\x1b") {
		t.Errorf("colours in spite of NO_COLOR: %q", got)
	}
	var piped strings.Builder
	t.Setenv("NO_COLOR", "")
	run(context.Background(), []string{"flow", "watch", "--from", file}, nil, &piped, io.Discard)
	if got := piped.String(); strings.Count(got, "\n") != 2 || strings.Contains(got, "TIME") ||
		strings.Contains(got, "\x1b") {
		t.Errorf("a pipe gets %q", got)
	}
}
