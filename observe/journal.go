package observe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// The two files of a journal. When the newer one is full or old, it takes the place of the older one.
const (
	newerFile = "events.jsonl"
	olderFile = "events.old.jsonl"
)

// Journal keeps the events of the last while as JSON lines in two files, so that they outlive the process. It holds at least Keep of
// them, unless that would take more than MaxBytes. Its methods may be called from any goroutine.
type Journal struct {
	dir      string
	keep     time.Duration
	maxBytes int64

	mu    sync.Mutex
	file  *os.File      // guarded by mu
	out   *bufio.Writer // guarded by mu
	size  int64         // guarded by mu; of file, with what is in out
	begun time.Time     // guarded by mu; when file began
	line  []byte        // guarded by mu; scratch
}

// OpenJournal goes on with the journal in dir, which it makes if needed. The files are the owner's alone: who talks to whom is nobody
// else's business.
func OpenJournal(dir string, keep time.Duration, maxBytes int64) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal of events: %w", err)
	}
	j := &Journal{dir: dir, keep: keep, maxBytes: maxBytes}
	return j, j.openLocked()
}

func (j *Journal) openLocked() error {
	f, err := os.OpenFile(j.path(newerFile), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("journal of events: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("journal of events: %w", err)
	}
	j.file, j.out, j.size, j.begun = f, bufio.NewWriterSize(f, 64<<10), info.Size(), time.Time{}
	if j.size > 0 { // a line that was cut short by a crash ends here
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, j.size-1); err == nil && last[0] != '\n' {
			j.out.WriteByte('\n')
			j.size++
		}
		for e, err := range ReadStream(io.NewSectionReader(f, 0, j.size)) {
			if err == nil {
				j.begun = e.At
				break
			}
		}
	}
	return nil
}

func (j *Journal) path(name string) string { return filepath.Join(j.dir, name) }

// Append adds an event. It is on disk after the next Flush.
func (j *Journal) Append(e *Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return fs.ErrClosed
	}
	if j.begun.IsZero() {
		j.begun = e.At
	}
	if e.At.Sub(j.begun) > j.keep || j.size > j.maxBytes/2 {
		if err := j.rotateLocked(); err != nil {
			return err
		}
		j.begun = e.At
	}
	j.line = e.AppendJSON(j.line[:0])
	n, err := j.out.Write(j.line)
	j.size += int64(n)
	return err
}

func (j *Journal) rotateLocked() error {
	err := errors.Join(j.out.Flush(), j.file.Close(), os.Rename(j.path(newerFile), j.path(olderFile)))
	j.file = nil
	return errors.Join(err, j.openLocked())
}

// Flush writes what is in memory.
func (j *Journal) Flush() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	return j.out.Flush()
}

// Close flushes and closes the journal. What it holds stays.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := errors.Join(j.out.Flush(), j.file.Close())
	j.file = nil
	return err
}

// Since returns the events that were appended before the call, from a time on, the oldest first. Lines that make no sense are left out. The
// sequence must be iterated, once: it holds open files.
func (j *Journal) Since(from time.Time) (iter.Seq[Event], error) {
	parts, err := j.snapshot()
	if err != nil {
		return nil, err
	}
	return func(yield func(Event) bool) {
		defer closeAll(parts)
		for _, p := range parts {
			for e, err := range ReadStream(io.NewSectionReader(p.file, 0, p.size)) {
				if err == nil && !e.At.Before(from) && !yield(e) {
					return
				}
			}
		}
	}, nil
}

// part is a file of the journal as long as it was when it was opened.
type part struct {
	file *os.File
	size int64
}

func closeAll(parts []part) {
	for _, p := range parts {
		p.file.Close()
	}
}

// snapshot opens both files, the older one first.
func (j *Journal) snapshot() ([]part, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		if err := j.out.Flush(); err != nil {
			return nil, err
		}
	}
	var parts []part
	for _, name := range []string{olderFile, newerFile} {
		f, err := os.Open(j.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var info fs.FileInfo
		if err == nil {
			parts = append(parts, part{file: f})
			info, err = f.Stat()
		}
		if err != nil {
			closeAll(parts)
			return nil, err
		}
		parts[len(parts)-1].size = info.Size()
	}
	return parts, nil
}

// maxLine is the longest line of a stream.
const maxLine = 64 << 10

// ReadStream yields the events of JSON lines. An error that is about one line comes with its number, and the next lines follow.
func ReadStream(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := bufio.NewScanner(r)
		s.Buffer(make([]byte, 0, 4096), maxLine)
		for n := 1; s.Scan(); n++ {
			if len(s.Bytes()) == 0 {
				continue
			}
			e, err := ParseEvent(s.Bytes())
			if err != nil {
				err = fmt.Errorf("line %d: %w", n, err)
			}
			if !yield(e, err) {
				return
			}
		}
		if err := s.Err(); err != nil {
			yield(Event{}, err)
		}
	}
}
