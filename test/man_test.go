package test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestManualPages: every page of docs/ becomes a manual page that has a name and a brief
// description. Building the packages, which only the long tests do, fails otherwise.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "./man", weir, "../docs", dir, "1")
	cmd.Dir = "../tools"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sources, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	made, err := filepath.Glob(filepath.Join(dir, "man[157]", "weir*.[157]"))
	if err != nil {
		t.Fatal(err)
	}
	// Benchmarks have none, and weir(1) has no page of its own.
	if len(made) != len(sources) {
		t.Errorf("%d manual pages of %d pages", len(made), len(sources))
	}
	for _, path := range made {
		out, err := exec.Command("man", "-P", "cat", "--", path).CombinedOutput()
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		text := strings.Join(strings.Fields(string(out)), " ")
		if err != nil || !strings.Contains(text, "NAME "+name+" - ") {
			t.Errorf("%s: %v\n%.300s", path, err, out)
		}
	}
}
