package main

import (
	"fmt"

	"github.com/weirnet/weir/agent"
	"github.com/weirnet/weir/agent/api"
)

// paths are those of the node that the flags name.
func (c *call) paths() agent.Paths { return agent.Paths{Root: c.node.root, Bpffs: c.node.bpffs} }

// client talks to that node.
func (c *call) client() *api.Client { return api.NewClient(c.paths().Socket()) }

// post asks the node for a change.
func (c *call) post(path string, request, answer any) error {
	return c.failed(c.client().Post(c.ctx, path, request, answer))
}

// failed puts the verb in front of an error.
func (c *call) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.verb.name, err)
}
