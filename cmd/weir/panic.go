package main

import "github.com/weirnet/weir/agent/api"

// panicCommand denies everything but the ssh session in which it is given.
func panicCommand(c *call) action {
	end := c.Bool("end", false, "restore the rules from before the panic")
	force := c.BoolP("force", "f", false,
		"deny everything even if there is no ssh session to keep")
	return func() error {
		path, request := "/v1/panic", any(api.Panic{Session: session(), Force: *force})
		if *end {
			path, request = "/v1/panic/end", nil
		}
		return c.change(path, request, false)
	}
}
