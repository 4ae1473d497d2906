package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSettingsOfReleases: the files with every setting of each release are read by later versions.
func TestSettingsOfReleases(t *testing.T) {
	files, err := filepath.Glob("testdata/releases/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no releases: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), " = "); n < 25 {
			t.Errorf("%s has %d settings", file, n)
		}
		if _, err := ReadSettings(file); err != nil {
			t.Errorf("%s is not read any more: %v", file, err)
		}
	}
}
