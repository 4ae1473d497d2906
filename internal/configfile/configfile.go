// Package configfile reads the files that administrators write, such as the rule file, and finds
// out who else could write them.
package configfile

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// MaxBytes is how much of a file or stream is read: a rule file of a million table entries fits.
const MaxBytes = 64 << 20

// errTooLong means that there is more to read than MaxBytes.
type errTooLong struct{ name string }

func (e errTooLong) Error() string {
	return fmt.Sprintf("%s is longer than %d MiB", e.name, MaxBytes>>20)
}

// Hint returns what to do.
func (errTooLong) Hint() string {
	return "name another file; addresses of a large table go into its own: table T file PATH"
}

// NotRegular returns the error of a device, a pipe or a directory in the place of a file.
func NotRegular(path string) error {
	return &os.PathError{Op: "read", Path: path, Err: errNotRegular{path}}
}

type errNotRegular struct{ path string }

func (errNotRegular) Error() string { return "not a regular file" }

// Hint returns what to do.
func (e errNotRegular) Hint() string { return "name a file: ls -ld " + e.path }

// ReadAll reads a file or stream that may be endless.
func ReadAll(name string, r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		return nil, errTooLong{name}
	}
	return text, err
}

// Read reads a regular file. It does not wait, and takes bounded memory: neither a pipe without a
// writer nor a file of the wrong name must stop a boot.
func Read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() { // reading a directory has its own error
		return nil, NotRegular(path)
	}
	return ReadAll(path, f)
}
