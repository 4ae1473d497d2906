package main

import (
	"bytes"
	"encoding/json"
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

// TestVersionAsJSON: a program reads the commit, and the help writes the flag as it is given.
func TestVersionAsJSON(t *testing.T) {
	var out, help bytes.Buffer
	if err := run(t.Context(), "weir-store", []string{"version", "-j"}, &out, &help); err != nil {
		t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || answer["version"] != 1.0 ||
		answer["commit"] != builtFrom {
		t.Errorf("%s, %v", &out, err)
	}
	if err := run(t.Context(), "weir-store", []string{"version", "-h"}, &help,
		&help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "\n  -j\n") {
		t.Errorf("%v, %s", err, &help)
	}
}
