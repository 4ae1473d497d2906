// Package dirlock locks directories, so that only one process works on each.
package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/flock"
)

// Lock is held on a directory. The kernel drops it when the process ends, however that happens.
// A process that can open the locked file can hold the lock, so only the owner may open it.
type Lock struct{ held *os.File }

// ErrLocked means that another process holds the lock.
var ErrLocked error = errLocked{}

// errLocked has the id of that process, or 0 where it is not known.
type errLocked struct{ pid int }

func (e errLocked) Error() string {
	if e.pid == 0 {
		return "another agent uses it"
	}
	return fmt.Sprintf("another agent uses it, process %d", e.pid)
}

// Is reports whether an error is ErrLocked, with any process.
func (errLocked) Is(other error) bool { return other == ErrLocked }

// Hint returns how to see the other agent.
func (errLocked) Hint() string { return "weir status shows that agent; weir down ends it" }

// FileName is the file in a directory that others may read by which the directory is locked.
const FileName = "lock"

// AcquireByFile locks a directory for this process by a file in it that only its owner can open.
func AcquireByFile(dir string) (*Lock, error) {
	for {
		f, err := os.OpenFile(filepath.Join(dir, FileName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW,
			0o600)
		if err != nil {
			return nil, err
		}
		if err := f.Chmod(0o600); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		l, err := lockFile(dir, f)
		if err != nil {
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			l.Release()
			return nil, err
		}
		// A `weir down` may have removed the file before we had its lock.
		if now, err := os.Lstat(f.Name()); err == nil && os.SameFile(now, mine) {
			return l, nil
		}
		l.Release()
	}
}

// Acquire locks a directory for this process by itself: there can be no files on a bpf file
// system. It has to be ours alone.
func Acquire(path string) (*Lock, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	var s unix.Stat_t
	err = unix.Fstat(int(d.Fd()), &s)
	if err == nil && int(s.Uid) != os.Geteuid() {
		err = fmt.Errorf("%s belongs to user %d; remove it", path, s.Uid)
	}
	if err == nil && s.Mode&0o077 != 0 {
		err = d.Chmod(0o700)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return lockFile(path, d)
}

func lockFile(path string, f *os.File) (*Lock, error) {
	if err := flock.Lock(f, ErrLocked); err != nil {
		if errors.Is(err, ErrLocked) {
			err = errLocked{holder(f)}
		}
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Lock{f}, nil
}

// holder is the process that holds the lock of a file, or 0 if it is not known. Then it may be in
// another pid namespace, which /proc/locks does not show. Or /proc/locks has the devices of some
// file systems by another number.
func holder(f *os.File) int {
	var s unix.Stat_t
	if unix.Fstat(int(f.Fd()), &s) != nil {
		return 0
	}
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
	for line := range strings.Lines(string(text)) {
		// "1: FLOCK  ADVISORY  WRITE 4711 fe:01:123 0 EOF"; a "->" in front of a process that waits
		w := strings.Fields(line)
		if len(w) > 5 && w[1] == "FLOCK" && w[5] == file {
			pid, _ := strconv.Atoi(w[4])
			return max(pid, 0)
		}
	}
	return 0
}

// Release ends the lock.
func (l *Lock) Release() { l.held.Close() }

// Locks are the directories that this process alone works on.
type Locks []*Lock

// Release ends all of them.
func (c Locks) Release() {
	for _, l := range c {
		l.Release()
	}
}

// ReleaseOne releases one directory, whether or not it is locked.
func (c Locks) ReleaseOne(dir string) {
	for _, l := range c {
		if l.held.Name() == dir {
			l.Release()
		}
	}
}

// CheckInPlace returns an error if a locked directory is no longer at its path: the next process
// would find another directory there, or none, with no lock.
func (c Locks) CheckInPlace(dir string) error {
	for _, l := range c {
		if l.held.Name() != dir {
			continue
		}
		mine, err := l.held.Stat()
		if err != nil {
			return err
		}
		now, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !os.SameFile(now, mine) {
			return fmt.Errorf("%s is another directory than the locked one", dir)
		}
	}
	return nil
}
