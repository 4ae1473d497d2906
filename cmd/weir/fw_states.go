package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/tty"
)

func fwStatesVerb(c *call) action {
	asJSON := c.json("")
	return func() error {
		if !*asJSON {
			return c.listStates()
		}
		var s api.States
		if err := c.get("/v1/states", &s); err != nil {
			return err
		}
		return printJSON(c.out, s)
	}
}

// listStates prints the live states as a table.
func (c *call) listStates() error {
	var s api.States
	if err := c.get("/v1/states", &s); err != nil {
		return err
	}
	printStates(c, s.States)
	printTable(c, &s.Table, "# ")
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
