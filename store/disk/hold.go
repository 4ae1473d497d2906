package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/internal/flock"
)

// errHeld means that another process holds the directory.
var errHeld = errors.New("another weir join has not ended: wait for it")

// holdAgain is how often Hold looks whether the other process has ended.
const holdAgain = 20 * time.Millisecond

// Hold makes a directory if needed, and has this process alone write what a host has of its
// membership, until the file is closed. It waits for another process until the context ends.
func Hold(ctx context.Context, dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for {
		f, err := flock.Open(dir, errHeld)
		if !errors.Is(err, errHeld) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", dir, err)
		case <-time.After(holdAgain):
		}
	}
}

// Reserve takes space on the disk of a directory until the file is closed. Not every file system
// can do that: then nothing is taken.
func Reserve(dir string, size int64) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".reserve-") // sweep removes it after a crash
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %d KiB are needed: %w", dir, size>>10, err)
	}
	return f, nil
}

// sweep removes what crashes have left, unless a join is under way: it would lose what it writes.
func sweep(dir string) error {
	f, err := flock.Open(dir, errHeld)
	if errors.Is(err, errHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return atomicfile.RemoveLeftovers(dir)
}
