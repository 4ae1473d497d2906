package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// command declares one command of the binary. Usage, help, completion and the manual page are made
// from it and from the flags that declare adds.
type command struct {
	name    string // one or two words: "fw check"
	args    string // of the usage line, behind the flags
	brief   string // one line for the list of commands
	declare func(*call) action
}

// action executes a command. Its flags and arguments have been read.
type action func() error

// call is one execution of a command: its flags, its arguments and the three streams.
type call struct {
	*pflag.FlagSet
	cmd     *cobra.Command
	ctx     context.Context
	command command
	node    *nodeFlags
	in      io.Reader
	out     io.Writer // the answer
	stderr  io.Writer // messages
}

// nodeFlags select the node that a command uses.
type nodeFlags struct{ root, bpffs string }

// newCommand declares the whole command line.
func newCommand(ctx context.Context, in io.Reader, out, stderr io.Writer) *cobra.Command {
	var node nodeFlags
	top := newGroup("weir [--root DIR] [--bpffs DIR]")
	top.SetOut(out)
	top.SilenceErrors, top.SilenceUsage = true, true
	top.CompletionOptions.DisableDefaultCmd = true
	top.SetHelpFunc(help)
	top.SetFlagErrorFunc(wrongFlag)
	shared := top.PersistentFlags()
	shared.SortFlags = false
	shared.StringVar(&node.root, "root", "", "put `DIR` in front of every path of the node")
	shared.StringVar(&node.bpffs, "bpffs", "",
		"pin eBPF objects in `DIR` instead of /sys/fs/bpf/weir")
	shared.BoolP("help", "h", false, "print this")
	wantVersion := top.Flags().Bool("version", false, "print the version")
	top.RunE = func(*cobra.Command, []string) error {
		if *wantVersion {
			return printVersion(out, false)
		}
		listCommands(stderr, top)
		return statusError(2)
	}
	groups := map[string]*cobra.Command{"": top}
	for _, v := range commands() {
		group, name, two := strings.Cut(v.name, " ")
		if !two {
			group, name = "", v.name
		} else if groups[group] == nil {
			groups[group] = newGroup(group)
			top.AddCommand(groups[group])
		}
		c := &call{ctx: ctx, command: v, node: &node, in: in, out: out, stderr: stderr,
			cmd: &cobra.Command{Use: name, Short: v.brief, DisableFlagsInUseLine: true}}
		c.FlagSet = c.cmd.Flags()
		c.declare()
		groups[group].AddCommand(c.cmd)
	}
	addHelp(top)
	return top
}

// newGroup is a command that only has commands below it.
func newGroup(usage string) *cobra.Command {
	return &cobra.Command{Use: usage + " COMMAND ...", DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 || cmd.HasParent() {
				return unknownCommand(cmd, args)
			}
			return nil
		}, RunE: func(*cobra.Command, []string) error { return nil }} // never: Args fails
}

// declare adds the flags of the command and what it executes.
func (c *call) declare() {
	c.SortFlags = false
	c.takes(0, 0)
	if !takesFile(c.command.args) {
		c.cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	run := c.command.declare(c)
	c.cmd.RunE = func(*cobra.Command, []string) error { return run() }
	c.VisitAll(func(f *pflag.Flag) {
		if arg, _ := pflag.UnquoteUsage(f); !takesFile(arg) {
			// it fails when the command has registered a better one
			_ = c.cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	})
	c.cmd.Use = strings.Join(strings.Fields(c.cmd.Use+" "+flagUsage(c.FlagSet)+" "+c.command.args),
		" ")
}

// takesFile reports whether a placeholder of a usage line is a file.
func takesFile(placeholder string) bool {
	return slices.Contains([]string{"FILE", "[FILE]...", "OUT", "CAPTURE"}, placeholder)
}

// takes sets how many arguments the command takes (max < 0: any number). With any number of them
// flags end at the first one, so that a rule reaches the rule parser unchanged.
func (c *call) takes(min, max int) {
	c.SetInterspersed(max >= 0)
	c.cmd.Args = func(_ *cobra.Command, args []string) error {
		switch n := len(args); {
		case n < min:
			return c.wrong("missing %s", strings.Fields(c.command.args)[n])
		case max >= 0 && n > max:
			return c.wrong("unexpected %q", args[max])
		}
		if at := slices.Index(args, ""); at >= 0 {
			return c.wrong("argument %d is empty", at+1)
		}
		if err := c.emptyFlag(); err != nil {
			return err
		}
		return c.missingFlag()
	}
}

// requires marks a flag without which the command does not run.
func (c *call) requires(name string) { _ = c.cmd.MarkFlagRequired(name) }

// json declares the flag -j. When only some answers have a JSON form, which says them.
func (c *call) json(which string) *bool { return c.BoolP("json", "j", false, "print JSON"+which) }

// addHelp adds the command help, which completes commands. It refuses an unknown one.
func addHelp(top *cobra.Command) {
	top.InitDefaultHelpCmd()
	cmd, _, _ := top.Find([]string{"help"})
	cmd.Use, cmd.Short, cmd.DisableFlagsInUseLine = "help [COMMAND]",
		"Print the usage of a command", true
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		found, rest, _ := top.Find(args)
		if len(rest) > 0 {
			return unknownCommand(found, rest)
		}
		return found.Help()
	}
}
