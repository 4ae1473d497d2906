// Package flock locks files and directories with flock(2): one process at a time works on each. The
// kernel drops a lock when its file is closed, also when the process ends, however that happens.
package flock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a file or a directory, and locks it until it is closed. If it is locked already, the
// error is held. It does not wait.
func Open(path string, held error) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := Lock(f, held); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Lock is Open for what is open.
func Lock(f *os.File, held error) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return held
	}
	return err
}
