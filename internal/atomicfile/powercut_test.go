package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/atomicfile/powercut"
)

// lines is content of more than one page in which a missing part can be seen.
func lines(of string) string { return strings.Repeat(of+"\n", 2000) }

// TestPowerCut: at every point of a change, a power cut leaves the old or the new content, and the
// new one once a function has returned.
func TestPowerCut(t *testing.T) {
	d := powercut.New(t)
	path := filepath.Join(d.Dir, "state", "file")
	after := func(when string, want ...string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(d.Cut(t), "state", "file"))
		got := string(text)
		if errors.Is(err, fs.ErrNotExist) {
			got = "nothing"
		}
		if !slices.Contains(want, got) {
			t.Errorf("%s: a power cut leaves %d bytes %.20q, %v", when, len(got), got, err)
		}
	}
	// The disk loses what is not synced: else the test could not fail.
	if err := os.Mkdir(filepath.Join(d.Dir, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Dir, "other", "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(d.Cut(t), "other", "file")); err == nil {
		t.Fatal("a file that was never synced survives")
	}

	before := "nothing"
	for _, text := range []string{lines("first"), lines("second, which is longer"), "short"} {
		p, err := Prepare(path, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		after("prepared", before)
		if err := p.rename(); err != nil {
			t.Fatal(err)
		}
		after("renamed", before, text)
		if err := SyncDir(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		after("committed", text)
		before = text
	}

	// The writer of the content may have died before it was on disk.
	if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("other")); err != nil {
		t.Fatal(err)
	}
	after("written again", "other")
	aside, err := MoveAside(path, "damaged")
	if err != nil {
		t.Fatal(err)
	}
	after("set aside", "nothing")
	if text, err := os.ReadFile(filepath.Join(d.Cut(t), "state",
		filepath.Base(aside))); string(text) != "other" {
		t.Errorf("set aside: %q, %v", text, err)
	}
	if err := Create(path, []byte("key")); err != nil {
		t.Fatal(err)
	}
	after("created", "key")
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	after("removed", "nothing")
}
