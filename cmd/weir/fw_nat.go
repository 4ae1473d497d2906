package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirnet/weir/agent/api"
)

// fwNATCommand prints the instances of nat itself and passes every change to the node.
func fwNATCommand(c *call) action {
	asJSON := c.json(" (show)")
	c.takes(1, -1)
	c.complete(fixed("show", "delete"))
	return func() error {
		if c.NArg() == 2 && c.Arg(1) == "show" {
			return c.failed(advice{errors.New("nat show takes no number"),
				"weir fw nat show shows all instances"})
		}
		if c.Arg(0) != "show" {
			return c.do("nat "+strings.Join(c.Args(), " "), false)
		}
		more := c.Args()[1:]
		if len(more) > 0 && more[0] == "config" { // all that there is to show
			more = more[1:]
		}
		if len(more) > 0 {
			return c.wrong("unexpected %q", more[0])
		}
		var all api.NATs
		return c.printAnswer("/v1/nat", &all, *asJSON, func() {
			for _, x := range all.NATs {
				fmt.Fprintf(c.out, "nat %d config %s\n", x.Number, c.show(x.Config))
			}
		})
	}
}
