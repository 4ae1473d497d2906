package main

import (
	"fmt"
	"slices"

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
	fmt.Fprintf(c.out, "\n%s\n", conclusion(r))
}

// conclusion is what the findings mean: features that this user may not try are not missing.
func conclusion(r doctor.Report) string {
	if r.Able {
		return "weir can guard interfaces on this machine."
	}
	if slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool { return f.Untried }) {
		return "weir cannot guard interfaces as this user: as root, weir doctor tests more."
	}
	return "weir cannot guard interfaces on this machine: a required feature is missing."
}
