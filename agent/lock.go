package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lock is a claim on a directory. The kernel drops it when the process ends, however that happens.
// A process that can open the locked file can hold the lock, so only the owner may open it.
type lock struct{ held *os.File }

// errLocked means that another process holds the claim.
var errLocked = errors.New("another agent is at work on it")

// lockName is the file in a directory that others may read by which the directory is claimed.
const lockName = "lock"

// lockIn claims a directory for this process by a file in it that only its owner can open.
func lockIn(dir string) (*lock, error) {
	for {
		f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW,
			0o600)
		if err != nil {
			return nil, err
		}
		if err := f.Chmod(0o600); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		l, err := claimFile(dir, f)
		if err != nil {
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			l.release()
			return nil, err
		}
		// A `weir down` may have removed the file before we had its lock.
		if now, err := os.Lstat(f.Name()); err == nil && os.SameFile(now, mine) {
			return l, nil
		}
		l.release()
	}
}

// lockDir claims a directory for this process by itself: there can be no files on a bpf file
// system. It has to be ours alone.
func lockDir(path string) (*lock, error) {
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
	return claimFile(path, d)
}

func claimFile(path string, f *os.File) (*lock, error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &lock{f}, nil
}

func (l *lock) release() { l.held.Close() }

// claims are the directories that this process alone works on.
type claims []*lock

func (c claims) release() {
	for _, l := range c {
		l.release()
	}
}

// releaseOne releases one directory, whether or not it is claimed.
func (c claims) releaseOne(dir string) {
	for _, l := range c {
		if l.held.Name() == dir {
			l.release()
		}
	}
}
