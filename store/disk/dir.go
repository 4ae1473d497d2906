package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/internal/atomicfile"
)

// leastLog is how large the log is, at least, when a new snapshot takes its place.
const leastLog = 1 << 20

// Dir is the directory of a copy. It is not safe for concurrent use.
type Dir struct {
	path   string
	log    *os.File // nil: the next thing to do is WriteSnapshot
	number uint64   // of the last record
	lost   bool     // records since then could not be appended
	dirty  bool     // something was appended that Sync has not had on the disk
	size   int64    // of the log
	copied int64    // size of the snapshot
	reads  bool     // nothing is changed
	step   func()   // called after each change of the files; tests stop there
}

// Open reads a directory, which it makes if needed. Damaged files are set aside. Without a
// snapshot and a log the state is empty, with revision 0.
func Open(path string) (*Dir, State, error) {
	d := &Dir{path: path, step: func() {}}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, State{}, err
	}
	err := errors.Join(os.Chmod(path, 0o700), atomicfile.SyncDir(filepath.Dir(path)))
	if err != nil {
		return nil, State{}, err
	}
	if err := sweep(path); err != nil {
		return nil, State{}, err
	}
	s, clean, err := d.read()
	if err != nil {
		return nil, State{}, err
	}
	if !clean {
		return d, s, nil
	}
	if d.log, err = os.OpenFile(d.at("log"), os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, State{}, err
	}
	d.dirty = true // the process before may have ended without Sync
	return d, s, nil
}

// Read reads a directory as Open does, and changes nothing in it. An empty one is an error.
func Read(path string) (State, error) {
	d := &Dir{path: path, reads: true}
	s, _, err := d.read()
	if err == nil && len(s.Stored.Entries)+len(s.Log) == 0 {
		err = fmt.Errorf("%s has no copy of a store: %w", path, fs.ErrNotExist)
	}
	return s, err
}

func (d *Dir) at(name string) string { return filepath.Join(d.path, name) }

// read reads the newest snapshot that is whole, and the records that follow it without a gap. It
// is clean when the log can be continued.
func (d *Dir) read() (s State, clean bool, err error) {
	clean = true
	for i, name := range []string{"copy", "copy.before"} {
		b, err := os.ReadFile(d.at(name))
		if errors.Is(err, fs.ErrNotExist) {
			clean = clean && i > 0
			continue
		}
		if err != nil {
			return s, false, err
		}
		number, snapshot, err := decode(b)
		if err == nil {
			s.Snapshot, d.number, d.copied = snapshot, number, int64(len(b))
			clean = clean && i == 0
			break
		}
		if clean = false; d.reads {
			continue
		}
		aside, err := atomicfile.MoveAside(d.at(name), "damaged")
		if err != nil {
			return s, false, err
		}
		s.Aside = append(s.Aside, aside)
	}
	for _, name := range []string{"log.before", "log"} {
		b, err := os.ReadFile(d.at(name))
		if errors.Is(err, fs.ErrNotExist) {
			clean = clean && name != "log"
			continue
		}
		if err != nil {
			return s, false, err
		}
		d.size = int64(len(b))
		if !d.follow(&s, b) {
			clean = false
		}
	}
	return s, clean, nil
}

// follow adds the records of a log that come next, and reports whether the log is whole. Those that
// the snapshot has are left out; behind a gap nothing can be used.
func (d *Dir) follow(s *State, b []byte) (whole bool) {
	for len(b) > 0 {
		number, r, rest, err := readRecord(b)
		if err != nil || number > d.number+1 {
			return false
		}
		if number == d.number+1 {
			d.number = number
			s.Log = append(s.Log, r)
		}
		b = rest
	}
	return true
}

// errBehind is the error while the log cannot be continued.
var errBehind = errors.New("a new snapshot has to be written first")

// SnapshotDue reports whether WriteSnapshot should be called: the log is larger than the snapshot
// and than 1 MiB, or cannot be continued.
func (d *Dir) SnapshotDue() bool { return d.log == nil || d.size > max(leastLog, d.copied) }

// Append writes a record. It is on the disk after the next Sync. After an error nothing is appended
// until WriteSnapshot succeeds, since what follows a gap could not be used.
func (d *Dir) Append(r Record) error {
	if d.log == nil {
		d.lost = true
		return errBehind
	}
	b := appendRecord(nil, d.number+1, &r)
	if len(b) > maxRecord {
		d.stop()
		d.lost = true
		return fmt.Errorf("a record of %d bytes", len(b))
	}
	if _, err := d.log.Write(b); err != nil {
		d.stop()
		d.lost = true
		return err
	}
	d.number++
	d.size += int64(len(b))
	d.dirty = true
	d.step()
	return nil
}

// MarkGap notes that records are missing from here on: nothing is appended until WriteSnapshot
// succeeds.
func (d *Dir) MarkGap() {
	d.stop()
	d.lost = true
}

// Sync has what was appended on the disk when it returns nil.
func (d *Dir) Sync() error {
	if d.log == nil {
		return errBehind
	}
	if !d.dirty {
		return nil
	}
	d.dirty = false
	err := d.log.Sync()
	if err != nil { // what is on the disk is not known any more
		d.stop()
	}
	return err
}

func (d *Dir) stop() {
	if d.log != nil {
		d.log.Close()
	}
	d.log = nil
}

// WriteSnapshot replaces the snapshot by one that has everything that was appended, or was lost
// because it could not be, and begins a new log. Until the new snapshot was read back, the one
// before and its log are what a start uses, and the log can be continued. After that they stay, in
// case that the new one is damaged.
func (d *Dir) WriteSnapshot(s Snapshot) error {
	if d.log != nil { // a start may need it
		if err := d.Sync(); err != nil {
			return err
		}
	}
	number := d.number
	if d.lost { // what follows must not be taken for what follows the old log
		number++
	}
	b := encode(number, &s)
	if err := d.prepare(b); err != nil {
		os.Remove(d.at("copy.new"))
		return err
	}
	d.stop()
	if err := d.place(); err != nil {
		os.Remove(d.at("copy.new"))
		return err
	}
	d.number, d.lost, d.copied, d.size, d.dirty = number, false, int64(len(b)), 0, false
	log, err := os.OpenFile(d.at("log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	d.step()
	if err := atomicfile.SyncDir(d.path); err != nil {
		return errors.Join(err, log.Close())
	}
	d.log = log
	return nil
}

// prepare writes a snapshot and reads it back.
func (d *Dir) prepare(b []byte) error {
	f, err := os.OpenFile(d.at("copy.new"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	d.step()
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	d.step()
	back, err := os.ReadFile(d.at("copy.new"))
	if err != nil {
		return err
	}
	if !bytes.Equal(back, b) {
		return fmt.Errorf("%s is not what was written", d.at("copy.new"))
	}
	return nil
}

// place puts the new snapshot into its place.
func (d *Dir) place() error {
	// Without a snapshot in its place, the logs are those of the one before.
	if _, err := os.Lstat(d.at("copy")); err == nil {
		if err := d.rename("log", "log.before"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := d.rename("copy", "copy.before"); err != nil {
			return err
		}
	}
	return d.rename("copy.new", "copy")
}

func (d *Dir) rename(from, to string) error {
	if err := os.Rename(d.at(from), d.at(to)); err != nil {
		return err
	}
	d.step()
	return atomicfile.SyncDir(d.path)
}

// Close ends the use of the directory; what was appended is on the disk.
func (d *Dir) Close() error {
	if d.log == nil {
		return nil
	}
	err := d.Sync()
	d.stop()
	return err
}
