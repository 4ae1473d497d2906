package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/hostfacts"
	"github.com/weirnet/weir/agent/setup"
	"github.com/weirnet/weir/internal/tty"
)

// setupTrial is how long the first rules are on trial unless the owner says otherwise.
const setupTrial = time.Minute

// setupAnswer is the answer of setup -j.
type setupAnswer struct {
	Version int         `json:"version"`
	Facts   setup.Facts `json:"facts"`
	Rules   string      `json:"rules"`
}

func setupCommand(c *call) action {
	dry := c.Bool("dry-run", false, "print the rule file, and change nothing")
	asJSON := c.BoolP("json", "j", false,
		"print what was found and the rule file as JSON, change nothing")
	force := c.Bool("force", false, "replace a rule file; the old one is kept under another name")
	confirm := c.trialFlag(setupTrial,
		"return to the previous rules after `TIME` without `weir confirm`")
	return func() error {
		n, err := c.nodeConfig("", nil)
		if err != nil {
			return c.failed(err)
		}
		facts, err := hostfacts.Gather(n.Settings.Host)
		if err != nil {
			return c.failed(err)
		}
		facts.TunnelPort = n.Settings.Overlay.Port
		text := setup.Rules(facts)
		switch {
		case *asJSON:
			return printJSON(c.out, setupAnswer{api.Version, facts, text})
		case *dry:
			_, err := fmt.Fprint(c.out, text)
			return err
		}
		for _, other := range facts.Firewalls {
			fmt.Fprintf(c.stderr, "another firewall is active, %s: a packet has to pass both\n",
				c.show(other))
		}
		request := api.Load{Name: n.Paths.Rules(), Text: text, Session: facts.Session,
			Confirm: confirm.Round(time.Millisecond).String(), Save: api.SaveNew}
		if *force {
			request.Save = api.SaveReplace
		}
		var done api.Done
		if err := c.post("/v1/load", request, &done); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s in force for %v, to be seen with: weir fw show\n",
			plural(done.Rules, "rule"), *confirm)
		c.warn(done.Warnings)
		var now api.Status
		if err := c.get("/v1/status", &now); err != nil {
			return err
		}
		if len(now.Interfaces) == 0 {
			fmt.Fprintln(c.stderr, "no interface is guarded, so the rules decide nothing: weir "+
				"status says why")
		}
		return c.askToKeep(*confirm)
	}
}

// askToKeep asks on a terminal whether the rules on trial stay, and says elsewhere how to keep
// them. A session that they have cut off does not answer.
func (c *call) askToKeep(most time.Duration) error {
	if !tty.IsTerminal(c.in) {
		fmt.Fprintln(c.out, "keep them and write the rule file: weir confirm")
		return nil
	}
	fmt.Fprintf(c.stderr, "Try a second session now. Keep the rules? [y/N] (%v) ", most)
	var done api.Done
	if !c.agreed() {
		c.ctx = context.WithoutCancel(c.ctx) // a signal is an answer, too
		if err := c.post("/v1/revert", nil, &done); err != nil {
			return err
		}
		fmt.Fprintln(c.out, "not kept: the previous rules are in force")
		return statusError(1)
	}
	if err := c.post("/v1/confirm", nil, &done); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s stay in force, and are the rule file\n", plural(done.Rules, "rule"))
	return nil
}
