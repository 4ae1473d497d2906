package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fileCommands read a file of the command line. FILE is its name, GOOD that of a rule file.
var fileCommands = []string{"fw check FILE", "fw lint FILE", "fw load FILE", "import FILE",
	"ipfw FILE", "fw why -f FILE x", "fw replay -f FILE GOOD", "fw replay -f GOOD FILE",
	"flow watch --from FILE", "flow watch -f GOOD --from FILE"}

// fileWords are the words of one of these commands for a node that is not there.
func fileWords(t *testing.T, command, file string) []string {
	t.Helper()
	good := filepath.Join(t.TempDir(), "good")
	err := os.WriteFile(good, []byte("add allow ip from any to any\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(strings.NewReplacer("FILE", file, "GOOD", good).Replace(command))
	return append([]string{"--root", t.TempDir()}, words...)
}

// TestPipesWithoutWriter: no command waits for a pipe into which no program writes.
func TestPipesWithoutWriter(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range fileCommands {
		var stderr bytes.Buffer
		code := run(t.Context(), fileWords(t, command, fifo), nil, io.Discard, &stderr)
		if code != 1 && code != exUnavailable ||
			!strings.Contains(stderr.String(), fifo+" is a pipe into which no program") {
			t.Errorf("%s: status %d, %s", command, code, &stderr)
		}
	}
}

// TestSignalsEndTheWait: a command that waits for its input ends with the context that a signal
// ends, whether it is stdin or a pipe.
func TestSignalsEndTheWait(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(fifo, os.O_RDWR, 0) // writes nothing
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	stdin, silent := io.Pipe()
	defer silent.Close()
	for _, command := range fileCommands {
		for _, file := range []string{"-", fifo} {
			if file == "-" && strings.HasPrefix(command, "ipfw") {
				continue // has no such name
			}
			ctx, signal := context.WithCancel(t.Context())
			signal()
			var stderr bytes.Buffer
			words := fileWords(t, command, file)
			if run(ctx, words, stdin, io.Discard, &stderr) == 2 {
				t.Errorf("%s %s: %s", command, file, &stderr)
			}
		}
	}
}

// TestCapturesAreNamed: an error of a capture names the file.
func TestCapturesAreNamed(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	for _, content := range []string{"", "no capture at all, but long enough to be one"} {
		if err := os.WriteFile(bad, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range fileCommands {
			if !strings.HasSuffix(command, "FILE") || !strings.Contains(command, "GOOD") {
				continue
			}
			var stderr bytes.Buffer
			code := run(t.Context(), fileWords(t, command, bad), nil, io.Discard, &stderr)
			if code != 1 || !strings.Contains(stderr.String(), bad) {
				t.Errorf("%s: status %d, %s", command, code, &stderr)
			}
		}
	}
}

// TestPipes: rules come from the pipe of a shell's <(command), and from stdin.
func TestPipes(t *testing.T) {
	const rules = "add allow ip from any to any\n"
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		w.WriteString(rules)
		w.Close()
	}()
	var out, stderr bytes.Buffer
	for _, file := range []string{"-", fmt.Sprint("/dev/fd/", r.Fd())} {
		if code := run(t.Context(), []string{"fw", "check", file}, strings.NewReader(rules), &out,
			&stderr); code != 0 {
			t.Errorf("%s: status %d, %s%s", file, code, &out, &stderr)
		}
	}
}
