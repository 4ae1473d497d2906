package main

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/tty"
)

func fwStatesCommand(c *call) action {
	asJSON := c.json("")
	c.takes(0, -1)
	c.complete(func(before []string) []cobra.Completion {
		if len(before) > 0 {
			return nil
		}
		return []cobra.Completion{"delete"}
	})
	return func() error {
		filter := c.Args()
		if len(filter) > 0 && filter[0] == "delete" {
			if len(filter) == 1 {
				return c.wrong("delete: missing FILTER")
			}
			return c.deleteStates(strings.Join(filter[1:], " "), *asJSON)
		}
		var s api.States
		q := url.Values{"filter": {strings.Join(filter, " ")}}
		return c.printAnswer("/v1/states?"+q.Encode(), &s, *asJSON, func() {
			printStates(c, s.States)
			printTable(c, &s.Table, "# ")
		})
	}
}

// deleteStates ends the states that a filter picks.
func (c *call) deleteStates(filter string, asJSON bool) error {
	var a api.Deleted
	if err := c.post("/v1/states/delete", api.DeleteStates{Filter: filter}, &a); err != nil {
		return err
	}
	if asJSON {
		return printJSON(c.out, a)
	}
	fmt.Fprintf(c.out, "%s deleted\n", plural(a.Deleted, "state"))
	return nil
}

func printStates(c *call, states []api.State) {
	t := tty.NewTable(c.out, "proto", "from", "to", "phase", ">age", ">left", ">packets",
		">bytes", ">rule", "flow")
	for _, s := range states {
		if s.Interface != "" {
			s.Flow += " on " + s.Interface
		}
		if s.ICMPType != 0 {
			s.Proto += fmt.Sprintf("/%d", s.ICMPType)
		}
		if s.Engine != "" {
			s.Flow += " (" + s.Engine + ")"
		}
		if s.WireFrom != "" {
			s.Flow = strings.TrimSpace(s.Flow + " as " + s.WireFrom + " > " + s.WireTo)
		}
		t.Row(s.Proto, s.From, s.To, s.Phase, short(s.AgeSeconds), short(s.LeftSeconds),
			fmt.Sprintf("%d/%d", s.Packets[0], s.Packets[1]), fmt.Sprintf("%d/%d", s.Bytes[0],
				s.Bytes[1]), s.Rule, s.Flow)
	}
	t.Flush()
}

// short prints a time in whole seconds: "12s", "5m0s".
func short(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
