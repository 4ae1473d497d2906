package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirnet/weir/agent"
	"github.com/weirnet/weir/agent/host"
)

func upCommand(c *call) action {
	config := c.String("config", "", "read settings from `FILE` instead of /etc/weir/weir.toml")
	rules := c.String("rules", "", "read rules from `FILE` instead of /etc/weir/rules")
	ifaces := c.StringArray("iface", nil,
		"guard the interfaces that match `GLOB`; may be given several times (default: all but lo)")
	boot := c.Bool("boot", false,
		"when the rules cannot be used, lock the host down instead of failing to start")
	last := c.Bool("last-resort", false,
		"after a failed start: close the host unless rules are in force, then exit")
	confirm := c.trialFlag(0,
		"return to the previous rules after `TIME` (30s) without `weir confirm`")
	c.completeFlag("iface", interfaces)
	// The unit passes the options of the agent on: a mistake in them keeps that from starting.
	closes := func(mistake error) error {
		if mistake == nil || !*last {
			return mistake
		}
		return errors.Join(mistake, c.lastResort(*config, nil, *rules))
	}
	checkArgs := c.cmd.Args
	c.cmd.Args = func(cmd *cobra.Command, words []string) error {
		return closes(checkArgs(cmd, words))
	}
	c.cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return closes(wrongFlag(cmd, err))
	})
	return func() error {
		if *last {
			return c.lastResort(*config, *ifaces, *rules)
		}
		if *confirm != 0 && *boot {
			return c.wrong("--confirm cannot be combined with --boot")
		}
		n, err := c.nodeConfig(*config, *ifaces)
		if err != nil {
			return fmt.Errorf("up: %w", err)
		}
		n.Boot, n.Confirm = *boot, *confirm
		n.Rules = *rules
		var handler slog.Handler = slog.NewTextHandler(c.stderr, nil)
		if n.Settings.LogJSON {
			handler = slog.NewJSONHandler(c.stderr, nil)
		}
		n.Log = slog.New(handler)
		n.Ready = func(line string) { fmt.Fprintf(c.stderr, "weir: %s\n", c.show(line)) }
		if n.Settings.LogJSON {
			n.Ready = func(line string) { n.Log.Info(line) }
		}
		n.Reload = hangups()
		err = agent.Run(c.ctx, n)
		for errors.Is(err, agent.ErrRestart) {
			n.Confirm = 0
			err = agent.Run(c.ctx, n)
		}
		if err != nil {
			return fmt.Errorf("up: %w", err)
		}
		return nil
	}
}

// lastResort closes the host after a failed start, also when the settings or the names of
// interfaces cannot be used: then what is left of them decides what is closed. systemd sets
// SERVICE_RESULT to how its service ended.
func (c *call) lastResort(config string, ifaces []string, rules string) error {
	if os.Getenv("SERVICE_RESULT") == "success" {
		return nil
	}
	n, err := c.nodeConfig(config, ifaces)
	if err != nil {
		n, _ = c.nodeConfig(config, nil)
	}
	closed, err := agent.LastResort(n.Paths, rules, n.Settings)
	if len(closed) > 0 {
		fmt.Fprintf(c.stderr,
			"weir: no rules are in force: closed %s to all but answers and ssh until weir up "+
				"starts\n", c.show(strings.Join(closed, " ")))
	}
	if err != nil {
		return fmt.Errorf("up: %w", err)
	}
	return nil
}

// nodeConfig reads the settings; the command line overrides the file.
func (c *call) nodeConfig(file string, ifaces []string) (agent.Config, error) {
	n := agent.Config{Paths: c.paths(), Settings: agent.DefaultSettings(),
		Build: build()}
	needed := file != ""
	if !needed {
		file = n.Paths.Settings()
	}
	s, err := agent.ReadSettings(file)
	switch {
	case err == nil:
		n.Settings = s
	case needed || !errors.Is(err, fs.ErrNotExist):
		return n, err
	}
	if len(ifaces) > 0 {
		n.Settings.Host.Interfaces = ifaces
	}
	return n, host.CheckInterfaces(n.Settings.Host.Interfaces)
}

// hangups turns SIGHUP into requests to read the rule file again.
func hangups() <-chan struct{} {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	reload := make(chan struct{})
	go func() {
		for range signals {
			reload <- struct{}{}
		}
	}()
	return reload
}
