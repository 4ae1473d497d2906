package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openPrivate opens a file to be written from the beginning, which only its owner can read: as a
// regular file it is this user's, whatever it was before. A pipe or a device stays as it is.
func openPrivate(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() {
			err = errForeign{name}
		} else {
			err = errors.Join(f.Chmod(0o600), f.Truncate(0))
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// errForeign refuses the file of another user, who could read what is written to it.
type errForeign struct{ name string }

func (e errForeign) Error() string {
	return fmt.Sprintf("%s belongs to another user, who could read what is written to it", e.name)
}

// Hint returns what to do.
func (errForeign) Hint() string { return "remove it, or name another file" }

// removeRegular removes a file to which nothing was written. A pipe or a device stays.
func removeRegular(f *os.File) error {
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = os.Remove(f.Name())
	}
	return err
}

// createWhole writes a new file, whole or not at all.
func createWhole(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return finishWhole(f, text)
}

// finishWhole writes a file and closes it. After an error it is removed.
func finishWhole(f *os.File, text []byte) error {
	_, err := f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
