package arch

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsNameWhatExists: tests that pages name as evidence, pages that they link to, and pages
// that comments point to exist in the tree.
func TestDocsNameWhatExists(t *testing.T) {
	const root = "../.."
	tests := map[string]bool{}
	all, err := files(root, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	for _, content := range all {
		for _, m := range declared.FindAllSubmatch(content, -1) {
			tests[string(m[1])] = true
		}
	}
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
		return err == nil
	}
	if all, err = files(root, text); err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(?:[\\w./]+\\.)?((?:Test|Benchmark|Fuzz)[A-Z0-9]\\w*)`")
	linked := regexp.MustCompile(`\](?:\(|: )([\w./-]+\.md)\b`)
	pages := regexp.MustCompile(`\bdocs/[\w./-]+\.md\b`)
	found := 0
	for name, content := range all {
		for _, page := range pages.FindAllString(string(content), -1) {
			if found++; !exists(page) {
				t.Errorf("%s names %s, which does not exist", name, page)
			}
		}
		if path.Ext(name) != ".md" {
			continue
		}
		if path.Dir(name) == "docs" && strings.Contains(string(content), `\|`) {
			t.Errorf("%s: manual pages show the backslash of a bar in a table", name)
		}
		for _, m := range named.FindAllSubmatch(content, -1) {
			if found++; !tests[string(m[1])] {
				t.Errorf("%s names the test %s, which does not exist", name, m[1])
			}
		}
		for _, m := range linked.FindAllSubmatch(content, -1) {
			if found++; !exists(path.Join(path.Dir(name), string(m[1]))) {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			}
		}
	}
	readme, err := read(root, "bpf/README.md")
	if err != nil {
		t.Fatal(err)
	}
	headers, err := filepath.Glob(filepath.Join(root, "bpf/lib/*.h"))
	if err != nil || len(headers) == 0 {
		t.Fatal("no headers in bpf/lib:", err)
	}
	for _, header := range headers {
		name := strings.TrimSuffix(filepath.Base(header), ".h")
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("bpf/README.md does not name %s", header)
		}
	}
	if found < 50 {
		t.Errorf("found %d names in the docs: the patterns look for something else", found)
	}
}
