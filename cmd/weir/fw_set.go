package main

import (
	"fmt"
	"strings"

	"github.com/weirnet/weir/agent/api"
)

// fwSetCommand prints the sets itself and passes every change to the node.
func fwSetCommand(c *call) action {
	asJSON := c.json(" (show)")
	c.takes(1, -1)
	c.complete(fixed("show", "disable", "enable", "swap", "move"))
	return func() error {
		if c.Arg(0) != "show" {
			return c.do("set "+strings.Join(c.Args(), " "), false)
		}
		if c.NArg() > 1 {
			return c.wrong("unexpected %q", c.Arg(1))
		}
		var s api.Sets
		return c.printAnswer("/v1/sets", &s, *asJSON, func() {
			disabled := strings.Trim(fmt.Sprint(s.Disabled), "[]")
			if disabled == "" {
				disabled = "none"
			}
			fmt.Fprintf(c.out, "disabled: %s\n", disabled)
			for _, u := range s.Used {
				fmt.Fprintf(c.out, "set %d: %s\n", u.Set, plural(u.Rules, "rule"))
			}
		})
	}
}
