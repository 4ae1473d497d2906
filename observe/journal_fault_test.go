package observe

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// TestJournalAfterAFailedRotation: the events that could not be kept are counted, those after them
// are kept.
func TestJournalAfterAFailedRotation(t *testing.T) {
	dir := t.TempDir()
	j, err := OpenJournal(dir, 10*time.Second, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(at(0)); err != nil {
		t.Fatal(err)
	}
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	blocker := filepath.Join(dir, olderFile, "x") // a directory that no rename replaces
	if err := os.MkdirAll(blocker, 0o700); err != nil {
		t.Fatal(err)
	}
	for s := 11; s < 16; s++ {
		if j.Append(at(s)) == nil || j.Flush() == nil {
			t.Errorf("event %d is said to be kept", s)
		}
	}
	if n := j.TakeLost(); n != 5 {
		t.Errorf("%d events are said to be lost, want 5", n)
	}
	if err := os.RemoveAll(filepath.Dir(blocker)); err != nil {
		t.Fatal(err)
	}
	for s := 20; s < 23; s++ {
		if err := j.Append(at(s)); err != nil {
			t.Error(err)
		}
	}
	if err := j.Flush(); err != nil {
		t.Error(err)
	}
	if got := seconds(t, j, 0); !slices.Equal(got, []int{0, 20, 21, 22}) {
		t.Errorf("kept are %v", got)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if err := j.Append(at(24)); err != fs.ErrClosed {
		t.Errorf("a closed journal: %v", err)
	}
}

// TestJournalOnAFullDisk: Flush returns the fault as long as it lasts, the past can be read, and
// events are kept again when there is space.
func TestJournalOnAFullDisk(t *testing.T) {
	nstest.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	j, err := OpenJournal(dir, time.Hour, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(at(1)); err != nil {
		t.Fatal(err)
	}
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("this test could not fail")
	}
	for s := 2; s < 600; s++ { // more than fits into what is left of a page
		j.Append(at(s))
		if s%50 == 0 {
			j.Flush()
		}
	}
	for range 3 {
		if err := j.Flush(); err == nil || !strings.Contains(err.Error(), "no space") {
			t.Errorf("the fault is %v", err)
		}
	}
	if got := seconds(t, j, 0); len(got) == 0 || got[0] != 1 {
		t.Errorf("the past is %v", got)
	}
	if j.TakeLost() == 0 {
		t.Error("nothing is said to be lost")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(at(700)); err != nil {
		t.Error(err)
	}
	if err := j.Flush(); err != nil {
		t.Error(err)
	}
	if got := seconds(t, j, 700); !slices.Equal(got, []int{700}) {
		t.Errorf("afterwards kept are %v", got)
	}
	if n := j.TakeLost(); n != 0 {
		t.Errorf("%d are said to be lost", n)
	}
}

// TestJournalThatCannotBeMade is tried again.
func TestJournalThatCannotBeMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := OpenJournal(dir, time.Hour, 1<<20)
	if err == nil || j.Flush() == nil || j.Append(at(1)) == nil {
		t.Errorf("nothing is wrong: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(at(3)); err != nil {
		t.Error(err)
	}
	if got := seconds(t, j, 0); !slices.Equal(got, []int{3}) {
		t.Errorf("kept are %v", got)
	}
}

// TestReadStreamSkipsDamage: after a power cut a run of zeros may stand anywhere.
func TestReadStreamSkipsDamage(t *testing.T) {
	var text []byte
	for s := range 4 {
		text = at(s).AppendJSON(text)
		switch s {
		case 0:
			text = append(append(text, make([]byte, 5*maxLine)...), '\n')
		case 1:
			text = append(append(text, make([]byte, 100)...), '\n')
		case 2:
			text = append(append(text, bytes.Repeat([]byte("x"), maxLine-1)...), '\n')
		}
	}
	text = append(text, `{"cut`...)
	var got []int
	var bad []string
	for e, err := range ReadStream(bytes.NewReader(text)) {
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		got = append(got, int(e.Length))
	}
	if !slices.Equal(got, []int{0, 1, 2, 3}) || len(bad) != 4 ||
		!strings.HasPrefix(bad[0], "line 2: longer") || !strings.HasPrefix(bad[3], "line 8: ") {
		t.Errorf("events %v, errors %.200q", got, bad)
	}
}

// TestJournalLeavesSpace: with any number of events, saved rules and records of pods on the same
// file system can be written.
func TestJournalLeavesSpace(t *testing.T) {
	nstest.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	state := filepath.Join(dir, "state")
	fill := func(j *Journal) {
		t.Helper()
		for s := range 40_000 {
			if err := j.Append(at(s % 60)); err != nil {
				t.Fatalf("event %d: %v", s, err)
			}
		}
		if err := j.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	open := func() *Journal {
		t.Helper()
		j, err := OpenJournal(filepath.Join(dir, "events"), time.Hour, 32<<20)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := open()
	fill(j)
	if err := os.WriteFile(state, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatalf("no space for half of the file system: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// What it holds when it is opened again counts as its own, not as lost space.
	j = open()
	fill(j)
	if err := os.WriteFile(state+".next", make([]byte, 256<<10), 0o600); err != nil {
		t.Fatalf("no space beside the journal: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
