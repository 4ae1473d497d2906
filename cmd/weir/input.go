package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/configfile"
)

// readFile reads a file of the command line, or stdin for "-".
func (c *call) readFile(path string) (name, text string, err error) {
	name, r, err := c.open(path)
	if err != nil {
		return name, "", err
	}
	defer r.Close()
	b, err := configfile.ReadAll(name, r)
	return name, string(b), err
}

// open opens a file of the command line, a pipe too, such as <(command) of a shell, or stdin for
// "-". What may have to wait for another program ends when the command is to end. A pipe that no
// program writes to is an error.
func (c *call) open(path string) (name string, r io.ReadCloser, err error) {
	if path == "-" {
		return "stdin", io.NopCloser(&waiting{c.ctx, c.in}), nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return path, nil, err
	}
	info, err := f.Stat()
	if err != nil || info.Mode().IsRegular() || info.IsDir() {
		return path, f, err
	}
	b := bufio.NewReader(&waiting{c.ctx, f})
	if info.Mode()&fs.ModeNamedPipe != 0 {
		if _, err := b.Peek(1); errors.Is(err, io.EOF) {
			f.Close()
			return path, nil, errUnwritten{path}
		}
	}
	return path, struct {
		io.Reader
		io.Closer
	}{b, f}, nil
}

// errUnwritten is a pipe without a writer.
type errUnwritten struct{ path string }

func (e errUnwritten) Error() string {
	return fmt.Sprintf("%s is a pipe into which no program writes", e.path)
}

// Hint returns what to do.
func (e errUnwritten) Hint() string {
	return "start the program that writes first, or name a file"
}

// waiting is a reader whose reads end when ctx does. The read below may wait until the process
// ends.
type waiting struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (w *waiting) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	mine, read := make([]byte, len(p)), make(chan result, 1)
	go func() {
		n, err := w.r.Read(mine)
		read <- result{n, err}
	}()
	select {
	case r := <-read:
		return copy(p, mine[:r.n]), r.err
	case <-w.ctx.Done():
		return 0, errors.New("interrupted while waiting for input")
	}
}
