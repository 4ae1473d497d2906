package main

import (
	"fmt"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/tty"
)

// fwDoCommand passes a command to the node in ipfw's syntax: "fw add 100 allow ..." is the line
// "add 100 allow ..." of a rule file.
func fwDoCommand(c *call) action {
	quiet := c.BoolP("quiet", "q", false, "print nothing on success")
	least := 1
	if c.command.name == "fw zero" {
		least = 0
	}
	c.takes(least, -1)
	if c.command.name != "fw add" {
		c.complete(c.liveRules)
	}
	return func() error {
		return c.do(strings.TrimPrefix(c.command.name, "fw ")+" "+strings.Join(c.Args(), " "),
			*quiet)
	}
}

func (c *call) do(line string, quiet bool) error { return c.doLine(line, quiet, false) }

// doLine has the node do a command. If it is lenient, what is to be removed and is not there is no
// error.
func (c *call) doLine(line string, quiet, lenient bool) error {
	return c.change("/v1/do", api.Command{Line: strings.TrimSpace(line), Lenient: lenient}, quiet)
}

// doFile has the node do the commands of a file, all or none.
func (c *call) doFile(name, text string, quiet bool) error {
	return c.change("/v1/commands", api.Commands{Name: name, Text: text}, quiet)
}

// change requests a change of the node and prints what was done.
func (c *call) change(path string, request any, quiet bool) error {
	var done api.Done
	if err := c.post(path, request, &done); err != nil {
		return err
	}
	c.message(done, quiet)
	return nil
}

// message prints what was done.
func (c *call) message(done api.Done, quiet bool) {
	if done.Message == "" || quiet {
		return
	}
	for line := range strings.SplitSeq(done.Message, "\n") {
		fmt.Fprintln(c.out, c.show(line))
	}
}

// fwFlushCommand asks for confirmation on a terminal: without rules the default decides everything.
func fwFlushCommand(c *call) action {
	force := c.BoolP("force", "f", false, "do not ask")
	quiet := c.BoolP("quiet", "q", false, "print nothing on success")
	return func() error {
		if !*force && !tty.IsTerminal(c.in) {
			return c.failed(errNotAsked{})
		}
		if !*force {
			fmt.Fprint(c.stderr, "remove all rules? [y/N] ")
			if !c.agreed() {
				return c.failed(fmt.Errorf("nothing was changed"))
			}
		}
		return c.do("flush", *quiet)
	}
}

// errNotAsked refuses a flush in a script that does not say that it means it, as `ssh HOST weir fw
// flush` and cron would run it.
type errNotAsked struct{}

func (errNotAsked) Error() string {
	return "nothing was changed: the input is not a terminal on which to ask"
}

// Hint returns how to mean it.
func (errNotAsked) Hint() string {
	return "weir fw flush -f removes all rules; weir fw load FILE replaces them"
}
