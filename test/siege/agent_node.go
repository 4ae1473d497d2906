package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// agentNode is a `weir up` in a namespace, with a root directory and a bpf file system of its own.
type agentNode struct {
	weir    string // the binary
	node    *nstest.Node
	root    string
	bpffs   string
	unmount func() error
	agent   *nstest.Cmd
	ended   chan error

	mu     sync.Mutex
	output strings.Builder // guarded by mu; what the agent wrote to stderr
}

func newAgentNode(weir string, node *nstest.Node, dir string) (*agentNode, error) {
	pins, unmount, err := nstest.MountBpffs()
	if err != nil {
		return nil, err
	}
	return &agentNode{weir: weir, node: node, root: dir, bpffs: filepath.Join(pins, "weir"),
		unmount: unmount}, nil
}

// write puts a file below the node's root.
func (g *agentNode) write(name, text string) error {
	path := filepath.Join(g.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// start runs `weir up` and waits for its ready line.
func (g *agentNode) start() error {
	g.agent = g.node.Command(g.weir, "up", "--root", g.root, "--bpffs", g.bpffs)
	pipe, err := g.agent.StderrPipe()
	if err != nil {
		return err
	}
	if err := g.agent.Start(); err != nil {
		g.agent = nil
		return err
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	g.ended = ended
	go func() {
		g.follow(pipe, ready)
		ended <- g.agent.Wait()
	}()
	select {
	case <-ready:
		return nil
	case err := <-ended:
		g.agent = nil
		return fmt.Errorf("weir up ended: %v\n%s", err, g.stderr())
	case <-time.After(longTimeout):
		return fmt.Errorf("weir up is not ready after %v\n%s", longTimeout, g.stderr())
	}
}

// killInStart starts the agent and kills it after a time, ready or not.
func (g *agentNode) killInStart(after time.Duration) error {
	cmd := g.node.Command(g.weir, "up", "--root", g.root, "--bpffs", g.bpffs)
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(after)
	err := cmd.Process.Kill()
	cmd.Wait()
	return err
}

// follow keeps what the agent prints and closes ready at its ready line.
func (g *agentNode) follow(r io.Reader, ready chan struct{}) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		g.mu.Lock()
		g.output.WriteString(lines.Text() + "\n")
		g.mu.Unlock()
		if strings.HasPrefix(lines.Text(), "weir: ready") && ready != nil {
			close(ready)
			ready = nil
		}
	}
}

// stderr is the end of what the agent printed.
func (g *agentNode) stderr() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	output := g.output.String()
	return output[max(0, len(output)-2000):]
}

// signal ends the agent by a signal and waits for its end.
func (g *agentNode) signal(s syscall.Signal) error {
	if g.agent == nil {
		return nil
	}
	if err := g.agent.Process.Signal(s); err != nil {
		return err
	}
	select {
	case <-g.ended:
		g.agent = nil
		return nil
	case <-time.After(longTimeout):
		return fmt.Errorf("the agent does not end after %v", s)
	}
}

// run runs a command of weir against the node and returns what it printed.
func (g *agentNode) run(args ...string) ([]byte, error) {
	cmd := g.node.Command(g.weir,
		append([]string{"--root", g.root, "--bpffs", g.bpffs}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("weir %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return out, nil
}

// status asks the node for its status.
func (g *agentNode) status() (s api.Status, err error) {
	out, err := g.run("status", "-j") // fails, too, when the node is not healthy
	if json.Unmarshal(out, &s) == nil {
		return s, nil
	}
	return s, err
}

// attach gives a namespace a pod's network.
func (g *agentNode) attach(pod *nstest.Node, args ...string) error {
	_, err := g.run(append(append([]string{"pod", "attach", "--name", pod.String()}, args...),
		pod.Path())...)
	return err
}

// close removes everything of the node.
func (g *agentNode) close() error {
	if g.agent != nil {
		if _, err := g.run("down"); err == nil {
			<-g.ended
		} else {
			g.signal(syscall.SIGKILL)
		}
	}
	return g.unmount()
}
