package main

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
)

// TestHelpFitsATerminal: no line of the help of any command, or of their list, has more than 80
// columns, and every flag is in it.
func TestHelpFitsATerminal(t *testing.T) {
	lines := [][]string{{"help"}}
	for _, c := range commands() {
		lines = append(lines, []string{c.name, "-h"})
	}
	for _, line := range lines {
		var text bytes.Buffer
		if err := run(t.Context(), "weir-store", line, &text, &text); err != nil && !errors.Is(err,
			flag.ErrHelp) {
			t.Fatalf("%q: %v", line, err)
		}
		if !strings.HasPrefix(text.String(), "usage: weir-store ") ||
			len(line) > 1 && !strings.Contains(text.String(), "\n  --dir string\n") {
			t.Errorf("%q prints\n%s", line, &text)
		}
		for l := range strings.Lines(text.String()) {
			if n := len(strings.TrimSuffix(l, "\n")); n > helpWidth || strings.Contains(l, "\t") {
				t.Errorf("%q: %d columns: %s", line, n, l)
			}
		}
	}
}
