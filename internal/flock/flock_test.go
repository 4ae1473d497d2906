package flock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestOpen: a directory and a file are locked once, until the lock is closed.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	held := errors.New("held")
	if _, err := Open(file, held); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file} {
		first, err := Open(path, held)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := Open(path, held); f != nil || !errors.Is(err, held) {
			t.Errorf("%s is locked again: %v", path, err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := Open(path, held)
		if err != nil {
			t.Fatalf("%s after the end of the lock: %v", path, err)
		}
		again.Close()
	}
}
