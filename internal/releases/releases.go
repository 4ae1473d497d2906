// Package releases tests the compatibility promises of releases
// (docs/design/0009-compatibility.md): each release has a list, and every later version must have
// every line of it.
package releases

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Check compares the lists dir/VERSION.txt with what this version has, which is in order. A list
// has at least so many lines. If write is not "", the list of that version is written first.
func Check(t *testing.T, dir string, now []string, least int, write string) {
	t.Helper()
	if write != "" {
		list := filepath.Join(dir, write+".txt")
		if err := os.WriteFile(list, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lists, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(lists) == 0 {
		t.Fatalf("no releases: %v", err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		promised := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(promised) < least {
			t.Errorf("%s promises %d lines", list, len(promised))
		}
		for _, line := range promised {
			if _, ok := slices.BinarySearch(now, line); !ok {
				t.Errorf("%s promises %q, which is gone or has changed. Before that release is "+
					"made, write its list again (-release); afterwards bring it back", list, line)
			}
		}
	}
}
