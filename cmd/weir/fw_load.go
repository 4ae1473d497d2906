package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/weirnet/weir/agent/api"
)

func runFwLoad(c *call) error {
	confirm := c.Duration("confirm", 0,
		"return to the previous rules after `TIME` (30s) without `weir fw confirm`")
	if err := c.onNode(1, -1); err != nil {
		return err
	}
	// The flag may also follow the file: fw load FILE --confirm 30s.
	file := c.Arg(0)
	if c.NArg() > 1 {
		if err := c.Parse(c.Args()[1:]); err != nil {
			return c.wrong("%v", err)
		}
		if c.NArg() > 0 {
			return c.wrong("unexpected %q", c.Arg(0))
		}
	}
	name, text, err := c.readFile(file)
	if err != nil {
		return c.failed(err)
	}
	if whole, err := filepath.Abs(name); err == nil && file != "-" {
		name = whole
	}
	request := api.Load{Name: name, Text: text, Session: session()}
	if *confirm != 0 {
		request.Confirm = (*confirm).Round(time.Millisecond).String()
	}
	var done api.Done
	if err := c.post("/v1/load", request, &done); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s from %s in force\n", plural(done.Rules, "rule"), c.show(name))
	if done.Message != "" {
		fmt.Fprintln(c.out, c.show(done.Message))
	}
	c.warn(done.Warnings)
	return nil
}

func runFwConfirm(c *call) error {
	if err := c.onNode(0, 0); err != nil {
		return err
	}
	var done api.Done
	if err := c.post("/v1/confirm", nil, &done); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s stay in force\n", plural(done.Rules, "rule"))
	return nil
}
