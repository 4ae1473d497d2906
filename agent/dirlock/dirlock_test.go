package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLockIsHeldOnce(t *testing.T) {
	for name, acquire := range map[string]func(string) (*Lock, error){
		"by itself": Acquire, "by a file": AcquireByFile} {
		dir := t.TempDir()
		first, err := acquire(dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := acquire(dir); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: second lock: got %v, want %v", name, err, ErrLocked)
		} else if want := fmt.Sprintf("process %d", os.Getpid()); !strings.HasSuffix(err.Error(),
			want) {
			t.Errorf("%s: second lock: %v, which should name %s", name, err, want)
		}
		first.Release()
		again, err := acquire(dir)
		if err != nil {
			t.Fatalf("%s: after release: %v", name, err)
		}
		again.Release()
	}
}

// TestOnlyTheOwnerHoldsTheLock: what other users can open in a directory that they may read does
// not prevent a lock on it, and they cannot open what is locked.
func TestOnlyTheOwnerHoldsTheLock(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	hostile, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer hostile.Close()
	if err := unix.Flock(int(hostile.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, FileName)
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	l, err := AcquireByFile(dir)
	if err != nil {
		t.Fatalf("with the directory locked: %v", err)
	}
	defer l.Release()
	if i, err := os.Stat(file); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the lock: %v, %v", i.Mode(), err)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	pins, err := Acquire(open)
	if err != nil {
		t.Fatal(err)
	}
	defer pins.Release()
	if i, err := os.Stat(open); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", i.Mode(), err)
	}
	if os.Geteuid() != 0 {
		return
	}
	theirs := t.TempDir()
	if err := os.Chown(theirs, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if l, err := Acquire(theirs); err == nil {
		l.Release()
		t.Error("a directory of another user is locked")
	}
}

// TestLockIsNoLink: the lock is a file of the directory, and not what a link there leads to.
func TestLockIsNoLink(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
	if l, err := AcquireByFile(dir); err == nil {
		l.Release()
		t.Error("a link is the lock")
	}
	if i, err := os.Stat(other); err != nil || i.Mode().Perm() != 0o644 {
		t.Errorf("what it leads to: %v, %v", i, err)
	}
}
