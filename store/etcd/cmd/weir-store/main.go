// Weir-store is the store of many hosts: it embeds etcd, or uses an external one, and serves the
// hosts' agents. docs/design/0008-cluster.md is the page to it; `weir cluster` runs it with the
// same words.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/weirnet/weir/internal/filehint"
)

// DefaultDir is where a weir-store keeps what it has.
const defaultDir = "/var/lib/weir-store"

// builtFrom is set by the linker (-X main.builtFrom=...).
var builtFrom = "unknown"

// command is a word after weir-store.
type command struct {
	name, args, help string
	run              func(ctx context.Context, c *call) error
}

func commands() []command {
	return []command{
		{"init", "", "make the CA and the store of a new cluster", initialise},
		{"serve", "", "run the store; the unit weir-store does", serve},
		{"invite", "", "print a token that a host joins with", invite},
		{"remove", "NAME", "remove a host; its certificate ends at once", remove},
		{"issue", "KIND:NAME FILE", "write a credential of an admin or a feed", issue},
		{"revoke", "KIND:NAME", "revoke the credentials of an admin or a feed", revoke},
		{"backup", "FILE", "write all that the store has", backup},
		{"restore", "FILE", "begin a new store with a backup", restore},
		{"grow", "NAME HOST:PORT FILE", "make another host a store host: the first part", grow},
		{"adopt", "FILE", "the second part, on that host", adopt},
		{"version", "", "print the commit that this was built from", version},
	}
}

// call is one run of a command.
type call struct {
	program       string // calledAs
	out, messages io.Writer
	command       command
	flags         *flag.FlagSet
	args          []string // set by parse
	given         []string
	dir           string
}

// parse reads the flags that the command has defined, and the arguments, in any order.
func (c *call) parse() error {
	c.flags.StringVar(&c.dir, "dir", defaultDir, "directory of the store")
	c.flags.SetOutput(io.Discard) // an error says it
	c.flags.Usage = func() {}
	for rest := c.given; ; rest = rest[1:] {
		if err := c.flags.Parse(rest); errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(c.out, "usage: %s %s\n%s\n", c.program, strings.TrimSpace(
				c.command.name+" [options] "+c.command.args), c.command.help)
			printFlags(c.out, c.flags)
			return err
		} else if err != nil {
			return c.wrong("%v", err)
		}
		if rest = c.flags.Args(); len(rest) == 0 {
			break
		}
		c.args = append(c.args, rest[0])
	}
	empty := ""
	c.flags.Visit(func(f *flag.Flag) {
		if f.Value.String() == "" {
			empty = f.Name
		}
	})
	names := strings.Fields(c.command.args)
	switch n := len(c.args); {
	case empty != "":
		return c.wrong("the value of --%s is empty", empty)
	case n > len(names):
		return c.wrong("unexpected %q", c.args[len(names)])
	case n < len(names):
		return c.wrong("missing %s", names[n])
	}
	if i := slices.Index(c.args, ""); i >= 0 {
		return c.wrong("%s is empty", names[i])
	}
	return nil
}

// wrong returns the error of a command that is not used as it should be.
func (c *call) wrong(format string, args ...any) error {
	return usageError{c.program, c.command.name, fmt.Sprintf(format, args...)}
}

// usageError says what is wrong with the words of a command.
type usageError struct{ program, command, what string }

// Error implements error.
func (e usageError) Error() string {
	whole := e.program + " " + e.command
	_, words, _ := strings.Cut(whole, " ")
	return fmt.Sprintf("%s: %s\nhint: %s --help", words, e.what, whole)
}

// Is reports whether an error is errUsage.
func (usageError) Is(other error) bool { return other == errUsage }

var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends what does not listen, such as a read
	program := calledAs(os.Args[0])
	name, _, _ := strings.Cut(program, " ")
	switch err := run(ctx, program, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		if hint := filehint.Of(err); hint != "" {
			fmt.Fprintf(os.Stderr, "hint: %s\n", hint)
		}
		os.Exit(1)
	}
}

// calledAs returns by which words this program was called: weir runs it as "weir cluster" or "weir
// node".
func calledAs(name string) string {
	if strings.HasPrefix(name, "weir ") {
		return name
	}
	return "weir-store"
}

func run(ctx context.Context, program string, args []string, out, messages io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: missing command\nhint: weir-store help", errUsage)
	}
	for _, cmd := range commands() {
		if cmd.name != args[0] {
			continue
		}
		c := &call{program: program, out: out, messages: messages, command: cmd, given: args[1:],
			flags: flag.NewFlagSet(cmd.name, flag.ContinueOnError)}
		return cmd.run(ctx, c)
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(out)
		return nil
	}
	return fmt.Errorf("%w: unknown command %q\nhint: weir-store help", errUsage, args[0])
}

// versionAnswer is what version -j prints.
type versionAnswer struct {
	Version int    `json:"version"`
	Commit  string `json:"commit"`
}

func version(_ context.Context, c *call) error {
	asJSON := c.flags.Bool("j", false, "print JSON")
	if err := c.parse(); err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(c.out).Encode(versionAnswer{1, builtFrom})
	}
	fmt.Fprintln(c.out, "weir-store", builtFrom)
	return nil
}

func usage(to io.Writer) {
	fmt.Fprintln(to, "usage: weir-store COMMAND [options] ...")
	for _, cmd := range commands() {
		fmt.Fprintf(to, "  %-8s %-20s %s\n", cmd.name, cmd.args, cmd.help)
	}
}
