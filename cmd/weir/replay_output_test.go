package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPassedIsPrivate: others cannot read what `fw replay -w` writes, also where OUT was a file
// that they could read.
func TestPassedIsPrivate(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.pcapng")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(old, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{old, filepath.Join(dir, "new.pcap")} {
		p, err := newPassed(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.finish(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("%s has the mode %o", path, got)
		}
	}
}
