package main

import (
	"context"

	"github.com/weirnet/weir/agent"
	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/pods"
	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/cni/netavark"
)

func netavarkCommand(c *call) action {
	c.takes(0, 2)
	return func() error {
		ctx, cancel := context.WithTimeout(c.ctx, cniTimeout)
		defer cancel()
		code := netavark.Run(ctx, netavark.Call{Args: c.Args(), Version: release, Stdin: c.in,
			Stdout: c.out, Dial: dialNode})
		if code != 0 {
			return statusError(code) // the error object is on stdout
		}
		return nil
	}
}

// dialNode connects a plugin to the node below a root.
func dialNode(root string) (cni.Agent, error) {
	return pods.NewRemote(api.NewClient(agent.Paths{Root: root}.Socket())), nil
}
