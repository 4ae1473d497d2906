package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirnet/weir/agent/api"
)

// fwPipeCommand prints the pipes itself and passes every change to the node.
func fwPipeCommand(c *call) action {
	asJSON := c.json(" (show)")
	c.takes(1, -1)
	c.complete(fixed("show", "delete", "flush"))
	return func() error {
		if c.NArg() == 2 && c.Arg(1) == "show" {
			return c.failed(advice{errors.New("pipe show takes no number"),
				"weir fw pipe show shows all pipes"})
		}
		if c.Arg(0) != "show" {
			return c.do("pipe "+strings.Join(c.Args(), " "), false)
		}
		if c.NArg() > 1 {
			return c.wrong("unexpected %q", c.Arg(1))
		}
		var all api.Pipes
		return c.printAnswer("/v1/pipes", &all, *asJSON, func() {
			for _, x := range all.Pipes {
				fmt.Fprintf(c.out, "pipe %d config %s\n", x.Number, c.show(x.Config))
			}
		})
	}
}
