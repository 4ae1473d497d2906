package observe

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
)

func at(s int) *Event {
	e := &Event{At: time.Unix(1700000000+int64(s), 0).UTC()}
	e.Kind, e.Length = firewall.EventDrop, uint32(s)
	e.Time = time.Duration(e.At.UnixNano())
	return e
}

func seconds(t *testing.T, j *Journal, from int) (got []int) {
	t.Helper()
	events, err := j.Since(at(from).At)
	if err != nil {
		t.Fatal(err)
	}
	for e := range events {
		got = append(got, int(e.Length))
	}
	return got
}

func TestJournalOutlivesItsProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "events")
	j, err := OpenJournal(dir, time.Minute, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for s := range 100 {
		if err := j.Append(at(s)); err != nil {
			t.Fatal(err)
		}
	}
	if got := seconds(t, j, 98); !slices.Equal(got, []int{98, 99}) {
		t.Errorf("got %v", got)
	}
	// A crash: nothing is closed, and the last line is cut short.
	f, err := os.OpenFile(filepath.Join(dir, newerFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"version":1,"ti`)
	f.Close()

	j, err = OpenJournal(dir, time.Minute, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for s := 100; s < 150; s++ {
		if err := j.Append(at(s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	got := seconds(t, j, 0)
	if len(got) < 60 || len(got) > 125 || got[len(got)-1] != 149 || !slices.IsSorted(got) ||
		got[len(got)-1]-got[0] != len(got)-1 {
		t.Errorf("a minute is kept, in order and without a gap: got %v", got)
	}
	info, err := os.Stat(filepath.Join(dir, newerFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := j.Append(at(200)); err == nil {
		t.Error("a closed journal takes events")
	}
}

func TestJournalIsBounded(t *testing.T) {
	dir := t.TempDir()
	const most = 64 << 10
	j, err := OpenJournal(dir, time.Hour, most)
	if err != nil {
		t.Fatal(err)
	}
	for s := range 2000 {
		if err := j.Append(at(s % 60)); err != nil {
			t.Fatal(err)
		}
		if s%100 != 0 {
			continue
		}
		if err := j.Flush(); err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, name := range []string{newerFile, olderFile} {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
				size += info.Size()
			}
		}
		if size > most+4096 {
			t.Fatalf("%d bytes after %d events, want at most %d", size, s, most)
		}
	}
	if got := seconds(t, j, 0); len(got) < 100 {
		t.Errorf("only %d events are left", len(got))
	}
}
