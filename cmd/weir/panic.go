package main

import "github.com/weirnet/weir/agent/api"

// panicCommand denies everything but the ssh session in which it is given.
func panicCommand(c *call) action {
	end := c.Bool("end", false, "put the rules before the panic in force again")
	force := c.BoolP("force", "f", false,
		"deny everything even if no ssh session can be spared")
	return func() error {
		path, request := "/v1/panic", any(api.Panic{Session: session(), Force: *force})
		if *end {
			path, request = "/v1/panic/end", nil
		}
		return c.change(path, request, false)
	}
}
