package test

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTopOnATerminal runs `weir flow top` on a terminal of 80 columns that script(1) makes: it
// draws, obeys a key, and leaves the terminal as it was.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	need(t, "script", "stty")
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("watched", watchedRules))
	probe(t, p, 81)
	cmd := p.server.Command("script", "-qec", "stty cols 80 rows 24; "+weir+" --root "+p.root+
		" flow top --every 200ms; stty -a", "/dev/null")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out programOutput
	cmd.Stdout = &out
	done := background(t, cmd)
	out.await(t, "10.66.0.1:81")
	for _, step := range []struct{ keys, shows string }{{"", "sort rate"}, {"s", "sort states"},
		{" ", "sort states, PAUSED"}, {" ", ""}, {"/81", "filter: 81_"}, {"\r", ""},
		{"q", "\x1b[?1049l"}} {
		in.Write([]byte(step.keys))
		out.await(t, step.shows)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%v: %q", err, out.String())
		}
	case <-time.After(testTimeout):
		t.Fatalf("q does not end it: %q", out.String())
	}
	text := out.String()
	for _, want := range []string{"\x1b[?1049h", "DENY", "10.66.0.1:81", "sort rate", "sort states",
		"sort states, PAUSED", "filter: 81_", "\x1b[?25h\x1b[?1049l", "isig icanon"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	screen, _, _ := strings.Cut(text, "\x1b[?1049l")
	for _, line := range regexp.MustCompile(`\x1b\[[?0-9;]*[A-Za-z]|[\r\n]+`).Split(screen, -1) {
		if len(line) > 80 {
			t.Errorf("a line of %d columns: %q", len(line), line)
		}
	}
	if strings.Contains(text, "-icanon") {
		t.Error("the terminal is left without its modes")
	}
}
