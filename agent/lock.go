package agent

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock is a claim on a directory. The kernel drops it when the process ends, however that happens, and no file tells of it.
type lock struct{ dir *os.File }

// errLocked means that another process holds the claim.
var errLocked = errors.New("another agent is at work on it")

// lockDir claims a directory for this process.
func lockDir(path string) (*lock, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		d.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &lock{d}, nil
}

func (l *lock) release() { l.dir.Close() }

// claims are the directories that this process alone works on.
type claims []*lock

func (c claims) release() {
	for _, l := range c {
		l.release()
	}
}

// releaseOne lets go of one directory, whether or not it is claimed.
func (c claims) releaseOne(dir string) {
	for _, l := range c {
		if l.dir.Name() == dir {
			l.release()
		}
	}
}
