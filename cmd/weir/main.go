// Weir is a firewall and a network for containers and hosts: rules in ipfw's grammar, enforced in
// the kernel, in user space and offline on captures. This is its one binary; `weir help` lists the
// commands, and docs/ has a page for each.
//
// Each command has a file here that reads its flags, calls a package and prints the result. No
// other package of Weir writes to stdout or ends the process.
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

	"github.com/weirnet/weir/internal/filehint"
	"github.com/weirnet/weir/internal/tty"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var code int
	switch {
	case isPlugin(os.Args):
		code = runPlugin(ctx, os.Stdin, os.Stdout)
	case isIPFW(os.Args):
		code = run(ctx, append([]string{"ipfw"}, os.Args[1:]...), os.Stdin, os.Stdout, os.Stderr)
	default:
		code = run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	stop()
	os.Exit(code)
}

// run executes a command line and returns the exit status: 0 success, 1 failure, 2 wrong usage.
func run(ctx context.Context, args []string, in io.Reader, out, stderr io.Writer) int {
	command := newCommand(ctx, in, out, stderr)
	command.SetArgs(protectIPFW(args))
	err := command.Execute()
	var usage usageError
	var status statusError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		// a script may hand over a name from outside
		fmt.Fprintf(stderr, "weir: %s\n", tty.Escape(err.Error()))
		if usage.hint != "" {
			fmt.Fprintf(stderr, "hint: %s\n", tty.Escape(usage.hint))
		}
		return 2
	}
	printError(stderr, "weir: ", err)
	return 1
}

// usageError is a mistake in the command line: exit status 2.
type usageError struct{ what, hint string }

func (e usageError) Error() string { return e.what }

// statusError ends the process with a status when the command has already printed everything.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// hinted is an error with a hint what to do next, reported is one that can print the place of each
// mistake.
type (
	hinted   interface{ Hint() string }
	reported interface{ Report() string }
)

// printError writes the mistakes, if any, with their places, then `weir: what failed: why` and, if
// the error has one, a `hint:` line. program is "weir: ".
func printError(stderr io.Writer, program string, err error) {
	var r reported
	if errors.As(err, &r) {
		fmt.Fprint(stderr, r.Report())
	}
	for i, line := range strings.Split(err.Error(), "\n") { // joined errors are one line each
		if i > 0 {
			line = "  " + line
		}
		fmt.Fprintf(stderr, "%s%s\n", [...]string{program, ""}[min(i, 1)], tty.Escape(line))
	}
	var h hinted
	switch {
	case errors.As(err, &h) && h.Hint() != "":
		printHint(stderr, h.Hint())
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		fmt.Fprintln(stderr, "hint: run as root")
	default:
		printHint(stderr, filehint.Of(err))
	}
}

func printHint(stderr io.Writer, hint string) {
	if hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", tty.Escape(hint))
	}
}
