package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/internal/tty"
	"github.com/weirnet/weir/rule"
)

// The exit statuses of ipfw, from sysexits.h.
const (
	exUsage       = 64
	exUnavailable = 69
)

// isIPFW reports whether the binary was called as ipfw.
func isIPFW(args []string) bool { return len(args) > 0 && filepath.Base(args[0]) == "ipfw" }

// protectIPFW keeps the flags of ipfw's command line from those of weir: `ipfw -q ...` gets a "--"
// behind the command. `weir fw -q ...`, with a flag in front of the command as in ipfw, is the
// same.
func protectIPFW(args []string) []string {
	i := 0
	for i < len(args) && strings.HasPrefix(args[i], "--") {
		if (args[i] == "--root" || args[i] == "--bpffs") && i+1 < len(args) {
			i++
		}
		i++
	}
	if i >= len(args) {
		return args
	}
	flags := args[i] == "fw" && i+1 < len(args) && len(args[i+1]) > 1 && args[i+1][0] == '-' &&
		args[i+1] != "-h" && strings.Trim(args[i+1][1:], ipfwLetters) == ""
	if !flags && args[i] != "ipfw" {
		return args
	}
	return append(append(args[:i:i], "ipfw", "--"), args[i+1:]...)
}

// ipfwCommand speaks ipfw's command line.
func ipfwCommand(c *call) action {
	c.takes(0, -1)
	return func() error {
		line, err := parseIPFW(c.Args())
		if err == nil {
			err = c.ipfw(line)
		}
		var usage usageError
		var status statusError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &status):
			return err
		case errors.As(err, &usage):
			fmt.Fprintf(c.stderr, "ipfw: %s\n", tty.Escape(usage.what))
			if usage.hint != "" {
				fmt.Fprintf(c.stderr, "hint: %s\n", tty.Escape(usage.hint))
			}
			return statusError(exUsage)
		}
		printError(c.stderr, "", err)
		if mistake := (*rule.Error)(nil); errors.As(err, &mistake) {
			return statusError(exUsage)
		}
		return statusError(exUnavailable)
	}
}

// ipfw executes a command line.
func (c *call) ipfw(l *ipfwLine) error {
	if l.help {
		fmt.Fprint(c.out, ipfwHelp)
		return nil
	}
	if l.file != "" {
		return c.ipfwFile(l)
	}
	full, abbreviated := l.expand()
	if abbreviated != "" {
		fmt.Fprintf(c.stderr, "ipfw: DEPRECATED: '%s' matched '%s' as a sub-string\n",
			tty.Escape(abbreviated), full)
	}
	switch full {
	case "":
		return usageError{what: fmt.Sprintf("bad command `%s'", l.words[0]), hint: "ipfw -h"}
	case "list", "print", "show":
		l.counters = l.counters || full == "show"
		return c.ipfwList(l)
	case "flush":
		return c.ipfwFlush(l)
	case "delete":
		return c.ipfwDelete(l)
	case "resetlog":
		return usageError{what: "resetlog: the counts of logamount cannot be reset here",
			hint: "a rule that is deleted and added again logs again"}
	case "set":
		if len(l.words) > 1 && isAbbreviated(l.words[1], "show") {
			return c.ipfwSets(l)
		}
	case "pipe":
		if slices.ContainsFunc(l.words[1:min(len(l.words), 3)], isShow) {
			return c.ipfwPipes(l)
		}
	case "nat":
		if slices.ContainsFunc(l.words[1:min(len(l.words), 3)], isShow) {
			return c.ipfwNATs(l)
		}
	case "table":
		return c.ipfwTable(l)
	}
	return c.ipfwDo(l, l.line(), false)
}

// ipfwDo checks a line and, unless -n is given, has the node do it.
func (c *call) ipfwDo(l *ipfwLine, line string, lenient bool) error {
	command, err := rule.ParseLine(line, rulefile.SystemNames())
	switch {
	case err != nil:
		return c.failed(err)
	case l.test && command.Kind == rule.CommandAdd && !l.quiet:
		fmt.Fprintf(c.out, "%05d %s\n", command.Rule.Number,
			c.show(command.Rule.Listing(rule.Style{Flows: true})))
		return nil
	case l.test || command.Kind == rule.CommandNone:
		return nil
	}
	return c.doLine(line, l.quiet, lenient)
}

// ipfwFile executes the lines of a file, all or none.
func (c *call) ipfwFile(l *ipfwLine) error {
	_, text, err := c.readFile(l.file)
	if err != nil {
		return c.failed(err)
	}
	if l.test {
		_, err := rule.ParseCommands(l.file, text, rulefile.SystemNames())
		return c.failed(err)
	}
	return c.doFile(l.file, text, l.quiet)
}

// ipfwFlush deletes all rules. ipfw asks only on a terminal. Where there is none, -f or -q has to
// be given here, because a flush cuts everything.
func (c *call) ipfwFlush(l *ipfwLine) error {
	switch {
	case l.only != nil:
		return c.ipfwDo(l, fmt.Sprintf("set %d flush", *l.only), true)
	case l.force || l.quiet || l.test:
	case !tty.IsTerminal(c.in):
		return usageError{what: errNotAsked{}.Error(), hint: "ipfw -f flush removes all rules"}
	default:
		var answer string
		for answer != "y" && answer != "n" {
			fmt.Fprint(c.out, "Are you sure? [yn] ")
			line, err := c.readLine(maxAnswer)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			answer = strings.ToLower(strings.TrimSpace(line))
		}
		if answer == "n" {
			return nil
		}
	}
	return c.ipfwDo(l, "flush", false)
}

// ipfwDelete deletes rule by rule: what is there goes, and the rest is an error unless -f is given.
func (c *call) ipfwDelete(l *ipfwLine) error {
	words := l.words[1:]
	if len(words) == 0 || words[0] == "set" {
		return c.ipfwDo(l, l.line(), false)
	}
	var failed error
	for _, w := range words {
		line := "delete " + w
		if l.only != nil {
			line = fmt.Sprintf("set %d delete %s", *l.only, w)
		}
		err := c.ipfwDo(l, line, false)
		if mistake := (*rule.Error)(nil); errors.As(err, &mistake) {
			return err
		}
		if err != nil && !l.quiet {
			printError(c.stderr, "", err)
		}
		if err != nil && !l.force {
			failed = statusError(exUnavailable)
		}
	}
	return failed
}
