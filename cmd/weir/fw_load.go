package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/store/admin"
	"github.com/weirnet/weir/store/cluster"
)

func fwLoadCommand(c *call) action {
	confirm := c.trialFlag(0,
		"return to the previous rules after `TIME` (30s) without `weir fw confirm`")
	on := c.String("on", "",
		"of a cluster, the hosts that get the rules, `SCOPE`: all, role:NAME or "+
			"node:NAME")
	c.takes(1, 1)
	return func() error {
		name, text, err := c.readFile(c.Arg(0))
		if err != nil {
			return c.failed(err)
		}
		member, err := c.isMember()
		if err != nil {
			return c.failed(err)
		}
		if member || *on != "" {
			scope := cluster.All
			if *on != "" {
				if scope, err = cluster.ParseScope(*on); err != nil {
					return c.wrong("--on: %v", err)
				}
			}
			return c.loadCluster(scope, name, text, *confirm)
		}
		if whole, err := filepath.Abs(name); err == nil && c.Arg(0) != "-" {
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
		c.warn(c.fileWarnings(done.Warnings))
		return nil
	}
}

// fwRevertCommand ends a trial without waiting.
func fwRevertCommand(c *call) action {
	return func() error {
		if member, err := c.isMember(); err != nil || member {
			if err != nil {
				return c.failed(err)
			}
			return c.revertCluster()
		}
		var done api.Done
		if err := c.post("/v1/revert", nil, &done); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s from before the trial in force\n", plural(done.Rules, "rule"))
		return nil
	}
}

func fwConfirmCommand(c *call) action {
	anyway := c.Bool("anyway", false,
		"of a cluster: also if hosts have sent no report since they switched")
	without := c.StringSlice("without", nil,
		"of a cluster: do not wait for the reports of these hosts: `HOST[,...]`")
	return func() error {
		if member, err := c.isMember(); err != nil || member {
			if err != nil {
				return c.failed(err)
			}
			return c.confirmCluster(admin.Without{All: *anyway, Hosts: *without})
		}
		var done api.Done
		if err := c.post("/v1/confirm", nil, &done); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s stay in force\n", plural(done.Rules, "rule"))
		return nil
	}
}
