package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// verb is one command of the binary.
type verb struct {
	name  string // one or two words: "fw check"
	args  string // of the usage line
	brief string // one line for the list of verbs
	run   func(*call) error
}

// call is one execution of a verb: its flags, its arguments and the three streams.
type call struct {
	*flag.FlagSet
	ctx    context.Context
	verb   verb
	args   []string // that follow the verb, flags included
	node   nodeFlags
	in     io.Reader
	out    io.Writer // the answer
	stderr io.Writer // messages
}

// nodeFlags select the node that a verb uses. They are accepted before every verb, and by every
// verb that needs a node.
type nodeFlags struct{ root, bpffs string }

func (n *nodeFlags) register(fs *flag.FlagSet) {
	fs.StringVar(&n.root, "root", n.root, "put `DIR` in front of every path of the node")
	fs.StringVar(&n.bpffs, "bpffs", n.bpffs,
		"pin eBPF objects in `DIR` instead of /sys/fs/bpf/weir")
}

// parse reads the verb's flags and leaves the arguments that follow in Args. It refuses fewer than
// min and more than max of them (max < 0: any number). Flags end at the first argument that is not
// one, so that a rule reaches the rule parser unchanged.
func (c *call) parse(min, max int) error {
	if err := c.Parse(c.args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			c.help()
			return statusError(0)
		}
		return c.wrong("%v", err)
	}
	switch n := c.NArg(); {
	case n < min && c.verb.args == "":
		return c.wrong("missing argument")
	case n < min:
		return c.wrong("missing %s", missing(c.verb.args, n))
	case max >= 0 && n > max:
		return c.wrong("unexpected %q", c.Arg(max))
	}
	return nil
}

// missing returns the n-th argument of a usage text that is not a flag.
func missing(args string, n int) string {
	var required []string
	for _, a := range strings.Fields(args) {
		if !strings.HasPrefix(a, "[") && !strings.HasSuffix(a, "]") {
			required = append(required, a)
		}
	}
	if n < len(required) {
		return required[n]
	}
	return args
}

// onNode is parse for verbs that use a node.
func (c *call) onNode(min, max int) error {
	c.node.register(c.FlagSet)
	return c.parse(min, max)
}

// wrong returns an error of usage, exit status 2.
func (c *call) wrong(format string, args ...any) error {
	return usageError{what: c.verb.name + ": " + fmt.Sprintf(format, args...),
		hint: "weir " + strings.TrimSpace(c.verb.name+" "+c.verb.args)}
}

// help prints the usage of the verb as an answer.
func (c *call) help() {
	fmt.Fprintf(c.out, "usage: weir %s\n\n%s.\n", strings.TrimSpace(c.verb.name+" "+c.verb.args),
		c.verb.brief)
	first := true
	c.VisitAll(func(f *flag.Flag) {
		if first {
			fmt.Fprintf(c.out, "\n")
			first = false
		}
		dash := "-"
		if len(f.Name) > 1 {
			dash = "--"
		}
		arg, text := flag.UnquoteUsage(f)
		fmt.Fprintf(c.out, "  %-18s %s\n", strings.TrimSpace(dash+f.Name+" "+arg), text)
	})
}

// dispatch finds the verb of a command line and runs it.
func dispatch(ctx context.Context, args []string, in io.Reader, out, stderr io.Writer) error {
	var node nodeFlags
	global := newFlags("weir")
	node.register(global)
	wantVersion := global.Bool("version", false, "print the version")
	err := global.Parse(args)
	rest := global.Args()
	switch {
	case errors.Is(err, flag.ErrHelp), err == nil && len(rest) == 1 && rest[0] == "help":
		listVerbs(out)
		return nil
	case err != nil:
		return usageError{what: err.Error(), hint: "weir help"}
	case *wantVersion:
		rest = []string{"version"}
	case len(rest) == 0:
		listVerbs(stderr)
		return statusError(2)
	}
	help := rest[0] == "help"
	if help {
		rest = rest[1:]
	}
	v, rest, err := findVerb(rest)
	if err != nil {
		return err
	}
	if help {
		rest = []string{"-h"}
	}
	return v.run(&call{FlagSet: newFlags(v.name), ctx: ctx, verb: v, args: rest, node: node,
		in: in, out: out, stderr: stderr})
}

func newFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

// findVerb returns the verb with the longest name that args begin with, and the arguments behind
// it.
func findVerb(args []string) (verb, []string, error) {
	for n := min(len(args), 2); n > 0; n-- {
		name := strings.Join(args[:n], " ")
		for _, v := range verbs() {
			if v.name == name {
				return v, args[n:], nil
			}
		}
	}
	var group []string
	for _, v := range verbs() {
		if strings.HasPrefix(v.name, args[0]+" ") {
			group = append(group, v.name[len(args[0])+1:])
		}
	}
	switch {
	case group == nil:
		return verb{}, nil, usageError{what: fmt.Sprintf("unknown verb %q", args[0]),
			hint: "weir help"}
	case len(args) == 1:
		return verb{}, nil, usageError{what: args[0] + ": missing verb", hint: "one of " +
			strings.Join(group, " ")}
	}
	return verb{}, nil, usageError{what: fmt.Sprintf("%s: unknown verb %q", args[0], args[1]),
		hint: "one of " + strings.Join(group, " ")}
}

// listVerbs prints the table of verbs.
func listVerbs(w io.Writer) {
	fmt.Fprintf(w, "usage: weir [--root DIR] [--bpffs DIR] VERB ...\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  %-12s %s\n", v.name, v.brief)
	}
	fmt.Fprintf(w, "\nMore about a verb: weir help VERB\n")
}
