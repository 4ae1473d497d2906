package observe

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The two files of a journal. When the newer one is full or old, it replaces the older one.
const (
	newerFile = "events.jsonl"
	olderFile = "events.old.jsonl"
)

// leastBytes is the smallest limit of one of the two files; with less space there is no journal.
const leastBytes = 64 << 10

// Journal keeps recent events as JSON lines in two files, so that they outlive the process. It has
// at least the events of the time keep, unless they take more than maxBytes. Its methods may be
// called from any goroutine.
//
// It takes at most half of the space that it finds. Anyone who sends packets can fill it, and saved
// rules and records of pods on the same file system must be writable, too.
//
// After a failure, such as a full disk or a lack of descriptors, the Journal tries again. It loses
// and counts the events of that time, and keeps those after it.
type Journal struct {
	dir      string
	keep     time.Duration
	maxBytes int64

	mu       sync.Mutex
	closed   bool          // guarded by mu
	file     *os.File      // guarded by mu; nil after a failure
	out      *bufio.Writer // guarded by mu
	size     int64         // guarded by mu; bytes in file and in out
	limit    int64         // guarded by mu; of size, in bytes
	begun    time.Time     // guarded by mu; time of the first event in file
	line     []byte        // guarded by mu; scratch
	waiting  uint64        // guarded by mu; events in out
	lost     uint64        // guarded by mu; events that were not kept since TakeLost
	fault    error         // guarded by mu; why events are not kept; nil while they are
	failedAt time.Time     // guarded by mu; time of the event at which it failed
}

// journalRetry is the time after a failure during which events are dropped without a new attempt.
const journalRetry = time.Second

// OpenJournal opens the journal in dir, which it makes if needed, and appends to it. Only the owner
// can read the files: they contain who talks to whom. With an error it returns a journal, too,
// which tries again later.
func OpenJournal(dir string, keep time.Duration, maxBytes int64) (*Journal, error) {
	j := &Journal{dir: dir, keep: keep, maxBytes: maxBytes}
	j.fault = j.openLocked()
	return j, j.fault
}

func (j *Journal) openLocked() error {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return fmt.Errorf("journal of events: %w", err)
	}
	limit, err := j.limitLocked()
	if err != nil {
		return fmt.Errorf("journal of events: %w", err)
	}
	f, err := os.OpenFile(j.path(newerFile), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("journal of events: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("journal of events: %w", err)
	}
	j.file, j.out = f, bufio.NewWriterSize(f, 64<<10)
	j.size, j.limit, j.begun = info.Size(), limit, time.Time{}
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

// limitLocked returns how large one file may become, in bytes: both files together take half of the
// space that is free or already theirs.
func (j *Journal) limitLocked() (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(j.dir, &s); err != nil {
		return 0, err
	}
	free := int64(min(s.Bavail, 1<<40)) * int64(s.Bsize)
	space := free
	for _, name := range []string{newerFile, olderFile} {
		if info, err := os.Stat(j.path(name)); err == nil {
			space += info.Size()
		}
	}
	limit := min(j.maxBytes/2, space/4)
	if limit < min(leastBytes, j.maxBytes/2) {
		return 0, fmt.Errorf("%d KiB are free: %w", free>>10, unix.ENOSPC)
	}
	return limit, nil
}

func (j *Journal) path(name string) string { return filepath.Join(j.dir, name) }

// Append adds an event. It is on disk after the next Flush. After an error it and those since the
// last Flush may be lost.
func (j *Journal) Append(e *Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return fs.ErrClosed
	}
	err := j.readyLocked(e.At)
	if err == nil {
		j.line = e.AppendJSON(j.line[:0])
		var n int
		n, err = j.out.Write(j.line)
		j.size += int64(n)
	}
	j.waiting++
	if err != nil {
		j.failLocked(err, e.At)
	}
	return err
}

// readyLocked makes sure that there is a file with space for an event.
func (j *Journal) readyLocked(at time.Time) error {
	if j.file == nil {
		if since := at.Sub(j.failedAt); since >= 0 && since < journalRetry {
			return j.fault
		}
		if err := j.openLocked(); err != nil {
			return err
		}
	}
	if j.begun.IsZero() {
		j.begun = at
	}
	if at.Sub(j.begun) <= j.keep && j.size <= j.limit {
		return nil
	}
	if err := j.rotateLocked(); err != nil {
		return err
	}
	j.begun = at
	return nil
}

// failLocked counts the events that were not flushed as lost. The file is opened again later: a
// bufio.Writer keeps its first error.
func (j *Journal) failLocked(err error, at time.Time) {
	if j.file != nil {
		j.file.Close()
	}
	j.lost += j.waiting
	j.file, j.waiting, j.fault, j.failedAt = nil, 0, err, at
}

func (j *Journal) rotateLocked() error {
	err := errors.Join(j.out.Flush(), j.file.Close())
	j.file = nil
	if err == nil { // else the older file would be lost for events that were not written
		err = os.Rename(j.path(newerFile), j.path(olderFile))
	}
	if err != nil {
		return fmt.Errorf("journal of events: %w", err)
	}
	j.waiting = 0
	return j.openLocked()
}

// Flush writes the buffered events. It returns an error while events are not kept.
func (j *Journal) Flush() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil || j.waiting == 0 {
		return j.fault
	}
	if err := j.out.Flush(); err != nil {
		j.failLocked(fmt.Errorf("journal of events: %w", err), time.Time{})
		return j.fault
	}
	j.waiting, j.fault = 0, nil
	return nil
}

// TakeLost returns how many events could not be kept since the last call.
func (j *Journal) TakeLost() (n uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, j.lost = j.lost, 0
	return n
}

// Close flushes and closes the journal. Its files remain.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed = true; j.file == nil {
		return nil
	}
	err := errors.Join(j.out.Flush(), j.file.Close())
	j.file = nil
	return err
}

// Since returns the events that were appended before the call, from a time on, the oldest first.
// Damaged lines are left out. The sequence must be iterated, once: it holds open files.
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

// part is a file of the journal with the size that it had when it was opened.
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
	if j.file != nil && j.waiting > 0 {
		if err := j.out.Flush(); err != nil { // what is on disk can be read all the same
			j.failLocked(fmt.Errorf("journal of events: %w", err), time.Time{})
		} else {
			j.waiting = 0
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

// ReadStream yields the events of JSON lines. An error that is about one line comes with its
// number, and the next lines follow.
func ReadStream(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewReaderSize(r, maxLine)
		for n := 1; ; n++ {
			line, err := lines.ReadSlice('\n')
			long := errors.Is(err, bufio.ErrBufferFull)
			for errors.Is(err, bufio.ErrBufferFull) { // to the next one
				_, err = lines.ReadSlice('\n')
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield(Event{}, err)
				return
			}
			var e Event
			bad := errLong
			if !long {
				line = bytes.TrimRight(line, "\r\n")
				e, bad = ParseEvent(line)
			}
			if bad != nil {
				bad = fmt.Errorf("line %d: %w", n, bad)
			}
			if (long || len(line) > 0) && !yield(e, bad) || err != nil {
				return
			}
		}
	}
}

var errLong = fmt.Errorf("longer than %d bytes", maxLine)
