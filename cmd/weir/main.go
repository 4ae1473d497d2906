// Weir is a firewall and a network for containers and hosts: rules in ipfw's grammar, enforced in
// the kernel, in user space and offline on captures. This is its one binary; `weir help` lists the
// verbs, and docs/ has a page for each.
//
// Each verb has a file here that reads its flags, calls a room and prints what the room returns.
// Nothing else of Weir writes to stdout or ends the process.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/weirnet/weir/internal/tty"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var code int
	if isPlugin(os.Args) {
		code = runPlugin(ctx, os.Stdin, os.Stdout)
	} else {
		code = run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	stop()
	os.Exit(code)
}

// run does what the words say and returns the exit status: 0 done, 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, in io.Reader, out, talk io.Writer) int {
	err := dispatch(ctx, args, in, out, talk)
	var usage usageError
	var said statusError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &said):
		return int(said)
	case errors.As(err, &usage):
		fmt.Fprintf(talk, "weir: %v\n", err)
		if usage.hint != "" {
			fmt.Fprintf(talk, "hint: %s\n", usage.hint)
		}
		return 2
	}
	printError(talk, err)
	return 1
}

// usageError is a command line that makes no sense: exit status 2.
type usageError struct{ what, hint string }

func (e usageError) Error() string { return e.what }

// statusError ends the process with a status when everything there is to say has been printed
// already.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// hinted is an error that knows what to do next, reported one that can show the place of each
// mistake.
type (
	hinted   interface{ Hint() string }
	reported interface{ Report() string }
)

// printError writes the mistakes, if any, with their places, then `weir: what failed: why` and, if
// the error has one, a `hint:` line.
func printError(talk io.Writer, err error) {
	var r reported
	if errors.As(err, &r) {
		fmt.Fprint(talk, r.Report())
	}
	for i, line := range strings.Split(err.Error(), "\n") { // joined errors are one line each
		if i > 0 {
			line = "  " + line
		}
		fmt.Fprintf(talk, "%s%s\n", [...]string{"weir: ", ""}[min(i, 1)], tty.Escape(line))
	}
	var h hinted
	switch {
	case errors.As(err, &h) && h.Hint() != "":
		fmt.Fprintf(talk, "hint: %s\n", tty.Escape(h.Hint()))
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		fmt.Fprintln(talk, "hint: run as root")
	}
}
