package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryCommandHasAPage: docs/ is the source of the manual pages, so each command has one that
// begins with its name and shows its usage as the binary does.
func TestEveryCommandHasAPage(t *testing.T) {
	top := newCommand(t.Context(), nil, io.Discard, io.Discard)
	for _, v := range commands() {
		page := filepath.Join("..", "..", "docs", strings.ReplaceAll(v.name, " ", "-")+".md")
		text, err := os.ReadFile(page)
		if err != nil {
			t.Errorf("%s: %v", v.name, err)
			continue
		}
		if !strings.HasPrefix(string(text), "# weir "+v.name) {
			t.Errorf("%s does not begin with its name", page)
		}
		cmd, _, _ := top.Find(strings.Fields(v.name))
		// a usage may be broken into lines
		if usage := cmd.UseLine(); !strings.Contains(strings.Join(strings.Fields(string(text)),
			" "),
			usage) {
			t.Errorf("%s does not have the usage: %s", page, usage)
		}
	}
}

func TestCommandNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range commands() {
		if seen[v.name] {
			t.Errorf("%s twice", v.name)
		}
		seen[v.name] = true
		if v.brief == "" || strings.HasSuffix(v.brief, ".") || v.declare == nil {
			t.Errorf("%s: brief %q", v.name, v.brief)
		}
	}
}
