package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestOpenPrivate: others cannot read a capture, also where it takes the place of a file that they
// could read, and root writes none into the file of another user.
func TestOpenPrivate(t *testing.T) {
	nstest.RequireRoot(t)
	dir := t.TempDir()
	old, foreign := filepath.Join(dir, "old"), filepath.Join(dir, "foreign")
	for _, name := range []string{old, foreign} {
		if err := os.WriteFile(name, []byte("what was there"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(foreign, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{old, filepath.Join(dir, "new")} {
		f, err := openPrivate(name)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	var hint interface{ Hint() string }
	if _, err := openPrivate(foreign); !errors.As(err, &hint) {
		t.Errorf("the file of another user: %v", err)
	}
	if text, err := os.ReadFile(foreign); err != nil || string(text) != "what was there" {
		t.Errorf("it has %q, %v", text, err)
	}
	if f, err := openPrivate(os.DevNull); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}

// TestCreateWhole: of a file that cannot be written nothing is left, and one that is there stays.
func TestCreateWhole(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	f.Close() // as a full disk, it fails to be written
	if err := finishWhole(f, []byte("add")); err == nil {
		t.Error("a file that is closed is written")
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a part is left: %v", err)
	}
	for i, want := range []error{nil, fs.ErrExist} {
		if err := createWhole(name, []byte("add")); !errors.Is(err, want) {
			t.Errorf("time %d: %v", i, err)
		}
		if text, err := os.ReadFile(name); err != nil || string(text) != "add" {
			t.Errorf("time %d: %q, %v", i, text, err)
		}
	}
}

// TestCaptureOnFullDisk: without space for the beginning of a capture there is no file.
func TestCaptureOnFullDisk(t *testing.T) {
	dir := smallDisk(t)
	if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(dir, "capture"), "/dev/full"} {
		var messages bytes.Buffer
		if status := run(t.Context(), []string{"--root", dir, "flow", "capture", "-w", name},
			strings.NewReader(""), new(bytes.Buffer), &messages); status != 1 ||
			!strings.Contains(messages.String(), "hint: free space there: df -h ") {
			t.Errorf("%s: status %d: %s", name, status, &messages)
		}
		if _, err := os.Lstat(name); (err == nil) != (name == "/dev/full") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
