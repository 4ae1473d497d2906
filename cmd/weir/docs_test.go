package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryVerbHasAPage: docs/ is the source of the manual pages, so each verb has one that begins
// with its name and shows its usage as the binary does.
func TestEveryVerbHasAPage(t *testing.T) {
	for _, v := range verbs() {
		page := filepath.Join("..", "..", "docs", strings.ReplaceAll(v.name, " ", "-")+".md")
		text, err := os.ReadFile(page)
		if err != nil {
			t.Errorf("%s: %v", v.name, err)
			continue
		}
		if !strings.HasPrefix(string(text), "# weir "+v.name) {
			t.Errorf("%s does not begin with its name", page)
		}
		usage := "\n    weir " + strings.TrimSpace(v.name+" "+v.args) + "\n"
		if !strings.Contains(string(text), usage) {
			t.Errorf("%s does not have the line%s", page, usage)
		}
	}
}

func TestVerbNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range verbs() {
		if seen[v.name] {
			t.Errorf("%s twice", v.name)
		}
		seen[v.name] = true
		if v.brief == "" || strings.HasSuffix(v.brief, ".") || v.run == nil {
			t.Errorf("%s: brief %q", v.name, v.brief)
		}
	}
}
