package main

import (
	"fmt"

	"github.com/weirnet/weir/agent/doctor"
)

func doctorCommand(c *call) action {
	asJSON := c.json("")
	bundle := c.String("bundle", "", "write everything that a bug report needs to `FILE`, a tar.gz")
	mask := c.Bool("mask", false, "with --bundle: replace addresses")
	return func() error {
		r := doctor.Probe(c.paths().Pins(), c.paths().Rules(), c.paths().Settings())
		if *bundle != "" {
			return c.bundle(*bundle, *mask, r)
		}
		if *asJSON {
			if err := printJSON(c.out, r); err != nil {
				return err
			}
		} else {
			printReport(c, r)
		}
		if !r.Able {
			return statusError(1)
		}
		return nil
	}
}

func printReport(c *call, r doctor.Report) {
	t := newTable(c.out)
	for _, f := range r.Findings {
		state := "present"
		switch {
		case f.Untried:
			state, f.Lost, f.Hint = "untried", "", ""
		case !f.Present:
			state = "missing"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, state, c.show(f.Detail))
		if f.Lost != "" {
			fmt.Fprintf(t, "\t\tlost: %s\n", f.Lost)
		}
		if f.Hint != "" {
			fmt.Fprintf(t, "\t\thint: %s\n", f.Hint)
		}
	}
	t.Flush()
	if r.Able {
		fmt.Fprintln(c.out, "\nweir can guard interfaces on this machine.")
	} else {
		fmt.Fprintln(c.out,
			"\nweir cannot guard interfaces on this machine: a required feature is missing.")
	}
}
