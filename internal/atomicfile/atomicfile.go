// Package atomicfile keeps state in files that are either complete or absent, even after a crash, a
// full disk or a power cut. When a function that changes something returns nil, the change is on
// disk.
//
// A crash can leave a temporary file ".NAME-DIGITS" beside the file NAME. RemoveLeftovers removes
// those.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// mode is the mode of all files. Only the owner can read state, since some of it is secret.
const mode = 0o600

// ErrNotRegular means that there is a device, a pipe, a socket or a directory in the place of a
// file. A rename would take it away.
var ErrNotRegular = errors.New("it is not a regular file: name another file")

// mayReplace returns an error for what is there and no file, also behind a symbolic link.
func mayReplace(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "replace", Path: path, Err: ErrNotRegular}
	}
	return nil
}

// Write replaces a file. It makes the directory if needed, and does not write a file that has this
// content already.
func Write(path string, data []byte) error {
	p, err := Prepare(path, data)
	if err != nil {
		return err
	}
	return p.Commit()
}

// WriteFunc replaces a file with what a function writes, which need not be in memory. It makes the
// directory if needed. If the function fails, the file stays as it is.
func WriteFunc(path string, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	if err := errors.Join(makeDir(dir), mayReplace(path)); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-") // 0600
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return (&Pending{path: path, temp: f.Name()}).Commit()
}

// Pending is new content that is on disk beside the file that it will replace. Commit or Discard
// ends it.
type Pending struct {
	path string
	temp string // "" if the file has the content already
}

// Prepare writes new content beside a file. When it returns nil, nothing that follows needs disk
// space.
func Prepare(path string, data []byte) (*Pending, error) {
	dir := filepath.Dir(path)
	if err := errors.Join(makeDir(dir), mayReplace(path)); err != nil {
		return nil, err
	}
	same, err := has(path, data)
	if err != nil || same {
		return &Pending{path: path}, err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-") // 0600
	if err != nil {
		return nil, err
	}
	if err := finish(f, data); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return &Pending{path: path, temp: f.Name()}, nil
}

// Commit replaces the file. After an error the file has either the old or the new content,
// complete.
func (p *Pending) Commit() error {
	if p.temp != "" {
		if err := p.rename(); err != nil {
			p.Discard()
			return err
		}
	}
	return SyncDir(filepath.Dir(p.path))
}

func (p *Pending) rename() error { return os.Rename(p.temp, p.path) }

// Temp returns the name of the file with the new content, "" if the old one has it.
func (p *Pending) Temp() string { return p.temp }

// Discard removes the new content. The file stays as it is.
func (p *Pending) Discard() {
	if p.temp != "" {
		os.Remove(p.temp) // on an error the next RemoveLeftovers removes it
	}
}

// Replace renames a file to another one of its directory, on disk.
func Replace(temp, path string) error {
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Create writes a file that must not exist; the error is fs.ErrExist if it does. A crash leaves
// nothing behind if the file system supports O_TMPFILE.
func Create(path string, data []byte) error {
	dir := filepath.Dir(path)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err == nil {
		name := fmt.Sprintf("/proc/self/fd/%d", fd)
		err = finishAs(os.NewFile(uintptr(fd), path), data, func() error {
			return unix.Linkat(unix.AT_FDCWD, name, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
		})
		if err == nil {
			return SyncDir(dir)
		}
	}
	// The errors of open(2) for O_TMPFILE on a file system or kernel without it.
	unsupported := errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR)
	if !unsupported && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := finish(f, data); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil { // unlike rename, fails if the file exists
		return err
	}
	return SyncDir(dir)
}

// finish writes a new file, syncs it to disk and closes it.
func finish(f *os.File, data []byte) error { return finishAs(f, data, func() error { return nil }) }

// finishAs is finish with a last step before the file is closed.
func finishAs(f *os.File, data []byte, last func() error) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = last()
	}
	return errors.Join(err, f.Close())
}

// Remove removes a file, on disk. A file that does not exist is not an error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		// A read-only file system has another error for that.
		if _, there := os.Lstat(path); errors.Is(there, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// LinkAside gives a file a second name and returns it: PATH.WHY-TIME, with the time of the last
// change. Nothing overwrites the file under that name. A second call for the same file changes
// nothing.
func LinkAside(path, why string) (aside string, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	stamp := path + "." + why + "-" + info.ModTime().UTC().Format("20060102T150405.000000000Z")
	for i := 1; ; i++ {
		if aside = stamp; i > 1 {
			aside = fmt.Sprintf("%s-%d", stamp, i)
		}
		err = os.Link(path, aside)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
		if there, bad := os.Lstat(aside); bad == nil && os.SameFile(there, info) {
			err = nil
			break
		}
	}
	if err != nil {
		return "", err
	}
	return aside, SyncDir(filepath.Dir(path))
}

// MoveAside renames a file to the name that LinkAside gives it.
func MoveAside(path, why string) (aside string, err error) {
	if aside, err = LinkAside(path, why); err == nil {
		err = Remove(path)
	}
	return aside, err
}

// leftover matches the names that os.CreateTemp gives the temporary files of this package.
var leftover = regexp.MustCompile(`^\.[^.].*-[0-9]+$`)

// RemoveLeftovers removes the temporary files that crashes have left in a directory. The caller
// must be the only writer of the directory. Other files stay.
func RemoveLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if leftover.MatchString(e.Name()) && e.Type().IsRegular() {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// has reports whether a file has this content. It syncs such a file, because its writer may have
// died before the content was on disk.
func has(path string, data []byte) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() != int64(len(data)) || info.Mode().Perm() != mode {
		return false, err
	}
	there := make([]byte, len(data))
	if _, err := f.ReadAt(there, 0); err != nil || !bytes.Equal(there, data) {
		return false, nil // a file that cannot be read is written again
	}
	return true, f.Sync()
}

// makeDir makes a directory and its parents, on disk.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(parent)
}

// SyncDir syncs the entries of a directory to disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
