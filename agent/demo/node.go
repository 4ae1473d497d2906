package demo

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/weirnet/weir/agent"
	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// waitTimeout is how long the node may take to start or to go.
const waitTimeout = 3 * time.Minute

// node is a `weir up` in a namespace.
type node struct {
	cmd    *nstest.Cmd
	said   bytes.Buffer // what it wrote to stderr; read only after ended
	ended  chan error
	client *api.Client
}

// startNode starts a node that guards every interface of a namespace, and waits until it answers.
// rules is its file; "" for none.
func startNode(ctx context.Context, where *nstest.Node, weir, root, pins, rules string) (*node,
	error) {
	n := &node{ended: make(chan error, 1),
		client: api.NewClient(agent.Paths{Root: root, Bpffs: pins}.Socket())}
	n.cmd = where.Command(weir, "up", "--root", root, "--bpffs", pins)
	if rules != "" {
		n.cmd.Args = append(n.cmd.Args, "--rules", rules)
	}
	n.cmd.Stderr = &n.said
	// An interrupt at the terminal goes to the whole group; the node must live until the demo takes
	// it down.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: 0}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	answered := make(chan error, 1)
	go func() { answered <- n.client.Wait(ctx, waitTimeout) }()
	go func() { n.ended <- n.cmd.Wait() }()
	select {
	case err := <-answered:
		if err == nil {
			return n, nil
		}
		return nil, n.kill(err)
	case err := <-n.ended:
		return nil, fmt.Errorf("%w\n%s", err, strings.TrimSpace(n.said.String()))
	}
}

// kill ends a node that went wrong and adds what it said to the error.
func (n *node) kill(why error) error {
	n.cmd.Process.Kill()
	<-n.ended
	return fmt.Errorf("%w\n%s", why, strings.TrimSpace(n.said.String()))
}

// do gives the node a command in ipfw's words.
func (n *node) do(ctx context.Context, line string) error {
	var done api.Done
	return n.client.Post(ctx, "/v1/do", api.Command{Line: line}, &done)
}

// rules returns the rules with their counters.
func (n *node) rules(ctx context.Context) ([]api.Rule, error) {
	var r api.Rules
	err := n.client.Get(ctx, "/v1/rules", &r)
	return r.Rules, err
}

// peers returns the other nodes that it knows.
func (n *node) peers(ctx context.Context) ([]api.Peer, error) {
	var p api.Peers
	err := n.client.Get(ctx, "/v1/peers", &p)
	return p.Peers, err
}

// down takes the node and every trace of it away. It works also after the demo was interrupted.
func (n *node) down() error {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	var done api.Done
	err := n.client.Post(ctx, "/v1/down", nil, &done)
	if err != nil {
		return fmt.Errorf("take the node down: %w", n.kill(err))
	}
	select {
	case err = <-n.ended:
		return err
	case <-ctx.Done():
		return n.kill(ctx.Err())
	}
}
