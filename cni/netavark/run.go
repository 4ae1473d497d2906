package netavark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/weirnet/weir/cni"
)

// maxRequest is the longest request in bytes.
const maxRequest = 1 << 20

// Call is one call of the plugin.
type Call struct {
	Args    []string // create, setup NETNS, teardown NETNS or info; none is info
	Version string   // of this program
	Stdin   io.Reader
	Stdout  io.Writer
	// Dial connects to the agent with the given --root.
	Dial func(root string) (cni.Agent, error)
}

// Run serves one call and returns the exit status.
func Run(ctx context.Context, c Call) int {
	answer, err := c.serve(ctx)
	code := 0
	if err != nil {
		answer, code = failure{withHint(err)}, 1
	}
	if answer != nil && json.NewEncoder(c.Stdout).Encode(answer) != nil {
		return 1
	}
	return code
}

// withHint is what a person reads: podman shows one line.
func withHint(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		return fmt.Sprintf("weir: %v (%s)", err, hinted.Hint())
	}
	return fmt.Sprintf("weir: %v", err)
}

func (c *Call) serve(ctx context.Context) (any, error) {
	command, netns := "info", ""
	if len(c.Args) > 0 {
		command = c.Args[0]
	}
	switch command {
	case "info":
		return info{c.Version, apiVersion}, nil
	case "create":
		return c.create()
	case "setup", "teardown":
		if len(c.Args) < 2 {
			return nil, fmt.Errorf("%s: the path of the network namespace is missing", command)
		}
		netns = c.Args[1]
	default:
		return nil, fmt.Errorf("unknown command %q: create, setup NETNS, teardown NETNS or info",
			command)
	}
	var request container
	if err := c.read(&request); err != nil {
		return nil, err
	}
	options, err := readOptions(request.Network.Options)
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", request.Network.Name, err)
	}
	agent, err := c.Dial(options.root)
	if err != nil {
		return nil, err
	}
	if command == "teardown" {
		return nil, agent.Detach(ctx, request.ID, request.Own.Interface)
	}
	spec, err := request.spec(netns, options)
	if err != nil {
		return nil, err
	}
	reply, err := agent.Attach(ctx, spec)
	if err != nil {
		return nil, err
	}
	return statusOf(spec.IfName, reply), nil
}

func (c *Call) read(v any) error {
	data, err := io.ReadAll(io.LimitReader(c.Stdin, maxRequest))
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	return nil
}
