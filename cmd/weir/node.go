package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/weirnet/weir/agent"
	"github.com/weirnet/weir/agent/api"
)

// paths are the paths of the node that the flags select.
func (c *call) paths() agent.Paths {
	return agent.Paths{Root: absolute(c.node.root), Bpffs: absolute(c.node.bpffs)}
}

// absolute makes a path of the command line independent of the working directory; "" remains.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	whole, err := filepath.Abs(path)
	if err != nil { // the working directory is gone
		return path
	}
	return whole
}

// client returns a client of that node. It uses the read-only socket if this user may not open the
// other one.
func (c *call) client() *api.Client {
	return api.NewClient(c.paths().Socket(), c.paths().ReadSocket())
}

// get reads from the node.
func (c *call) get(path string, answer any) error {
	return c.failed(c.client().Get(c.ctx, path, answer))
}

// printAnswer reads an answer from the node and prints it: as JSON, or with print.
func (c *call) printAnswer(path string, answer any, asJSON bool, print func()) error {
	if err := c.get(path, answer); err != nil {
		return err
	}
	if asJSON {
		return printJSON(c.out, answer)
	}
	print()
	return nil
}

// post requests a change of the node.
func (c *call) post(path string, request, answer any) error {
	return c.failed(c.client().Post(c.ctx, path, request, answer))
}

// failed puts the command in front of an error.
func (c *call) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.command.name, err)
}

// podsTimeout is how long weir down waits for the number of containers: a node that does not
// answer is to go all the same.
const podsTimeout = 2 * time.Second

// containers is how many containers the node has, 0 where it does not say.
func (c *call) containers() int {
	ctx, cancel := context.WithTimeout(c.ctx, podsTimeout)
	defer cancel()
	var all api.Pods
	_ = c.client().Get(ctx, "/v1/pods", &all)
	known := map[string]bool{} // one may have several interfaces
	for i := range all.Pods {
		known[all.Pods[i].Container] = true
	}
	return len(known)
}

func downCommand(c *call) action {
	keep := c.Bool("keep", false,
		"keep rules, peers and key for the next start; containers lose their network nevertheless")
	return func() error {
		lose := c.containers()
		var done api.Done
		path := "/v1/down"
		if *keep {
			path += "?keep=1"
		}
		err := c.client().Post(c.ctx, path, nil, &done)
		if errors.Is(err, api.ErrNoNode) { // no agent, but perhaps its pinned objects
			err = agent.Down(c.paths(), *keep)
		}
		if err == nil && lose > 0 {
			fmt.Fprintf(c.stderr, "weir: without network until restarted: %s\n",
				plural(lose, "container"))
		}
		return c.failed(err)
	}
}
