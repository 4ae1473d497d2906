// Weir-store is the store of many hosts: it embeds etcd, or uses an external one, and serves the
// hosts' agents. docs/design/0008-cluster.md is the page to it; `weir cluster` runs it with the
// same words.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
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
	out, messages io.Writer
	flags         *flag.FlagSet
	args          []string // set by parse
	given         []string
	dir           string
}

// parse reads the flags that the command has defined, and the arguments that follow them.
func (c *call) parse(args int) error {
	c.flags.StringVar(&c.dir, "dir", defaultDir, "directory of the store")
	if err := c.flags.Parse(c.given); err != nil {
		return err
	}
	if c.args = c.flags.Args(); len(c.args) != args {
		c.flags.Usage()
		return errUsage
	}
	return nil
}

var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "weir-store:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, messages io.Writer) error {
	if len(args) == 0 {
		usage(messages)
		return errUsage
	}
	for _, cmd := range commands() {
		if cmd.name != args[0] {
			continue
		}
		c := &call{out: out, messages: messages, given: args[1:],
			flags: flag.NewFlagSet("weir-store "+cmd.name, flag.ContinueOnError)}
		c.flags.SetOutput(messages)
		c.flags.Usage = func() {
			fmt.Fprintf(messages, "usage: weir-store %s [options] %s\n%s\n", cmd.name, cmd.args,
				cmd.help)
			printFlags(messages, c.flags)
		}
		return cmd.run(ctx, c)
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(out)
		return nil
	}
	usage(messages)
	return errUsage
}

func version(_ context.Context, c *call) error {
	if err := c.parse(0); err != nil {
		return err
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
