package test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// agentNode is a `weir up` in a namespace, with its own root and bpf file system.
type agentNode struct {
	t      *testing.T
	node   *nstest.Node
	root   string
	bpffs  string
	agent  *exec.Cmd
	done   chan error
	stderr *transcript
	within []string // what `weir up` is run by, nil for nothing
	up     string   // the program whose `weir up` runs; empty for weir
	names  string   // a file that `weir up` sees as /etc/hosts; empty for the machine's own
}

// newAgentNode prepares a node; start starts it.
func newAgentNode(t *testing.T, node *nstest.Node) *agentNode {
	t.Helper()
	g := &agentNode{t: t, node: node, root: t.TempDir(),
		bpffs: filepath.Join(nstest.Bpffs(t), "weir")}
	t.Cleanup(func() {
		if g.agent != nil {
			g.kill()
		}
		if t.Failed() && g.stderr != nil {
			t.Logf("the agent printed:\n%s", g.stderr)
		}
	})
	return g
}

// start runs `weir up` with more arguments and waits for its ready line.
func (g *agentNode) start(args ...string) {
	g.t.Helper()
	ready := g.launch(args...)
	select {
	case <-ready:
	case err := <-g.done:
		g.t.Fatalf("weir up ended: %v\n%s", err, g.stderr)
	case <-time.After(testTimeout):
		g.t.Fatalf("weir up is not ready after a long time\n%s", g.stderr)
	}
}

// launch starts `weir up`. The channel is closed when its ready line came.
func (g *agentNode) launch(args ...string) (ready chan struct{}) {
	g.t.Helper()
	args = append([]string{cmp.Or(g.up, weir), "up", "--root", g.root, "--bpffs", g.bpffs}, args...)
	if g.names != "" { // in a mount namespace that still sees what is mounted outside
		args = append([]string{"unshare", "-m", "--propagation", "slave", "sh", "-ec",
			`mount --bind "$0" /etc/hosts; exec "$@"`, g.names}, args...)
	}
	args = slices.Concat(g.within, args)
	cmd := g.node.Command(args[0], args[1:]...)
	g.stderr = &transcript{ready: make(chan struct{})}
	pipe, err := cmd.StderrPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.agent, g.done = cmd.Cmd, make(chan error, 1)
	done, stderr := g.done, g.stderr
	go func() {
		stderr.follow(pipe)
		done <- cmd.Wait()
	}()
	return g.stderr.ready
}

// transcript collects what a process prints and finds its ready line.
type transcript struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
	once  sync.Once // a node that joins a cluster begins again
}

func (s *transcript) follow(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		s.mu.Lock()
		s.text.WriteString(lines.Text() + "\n")
		s.mu.Unlock()
		if strings.HasPrefix(lines.Text(), "weir: ready") ||
			strings.Contains(lines.Text(), `"msg":"ready: `) {
			s.once.Do(func() { close(s.ready) })
		}
	}
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// stop asks the agent to stop and waits for its clean end.
func (g *agentNode) stop() {
	g.t.Helper()
	g.agent.Process.Signal(syscall.SIGTERM)
	if err := g.wait(); err != nil {
		g.t.Fatalf("weir up after SIGTERM: %v\n%s", err, g.stderr)
	}
}

// kill ends the agent as a crash would.
func (g *agentNode) kill() {
	g.agent.Process.Kill()
	g.wait()
}

func (g *agentNode) wait() error {
	select {
	case err := <-g.done:
		g.agent = nil
		return err
	case <-time.After(testTimeout):
		g.t.Errorf("the agent does not end")
		return nil
	}
}

// try runs a command of weir against the node: command words first, then the rest.
func (g *agentNode) try(args ...string) (stdout, stderr string, err error) {
	cmd := g.node.Command(weir, append([]string{"--root", g.root, "--bpffs", g.bpffs}, args...)...)
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err = cmd.Run()
	return out.String(), text.String(), err
}

// weir is try for what has to work.
func (g *agentNode) weir(args ...string) string {
	g.t.Helper()
	out, stderr, err := g.try(args...)
	if err != nil {
		g.t.Fatalf("weir %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr)
	}
	return out
}

// json runs a reading command with -j and returns its answer in v.
func (g *agentNode) json(v any, args ...string) {
	g.t.Helper()
	command := 1
	if args[0] == "fw" || args[0] == "flow" {
		command = 2
	}
	out := g.weir(slices.Insert(slices.Clone(args), command, "-j")...)
	unmarshal(g.t, out, v)
}

func unmarshal(t *testing.T, out string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// file writes a file into the node's root and returns its path.
func (g *agentNode) file(name, text string) string {
	g.t.Helper()
	path := filepath.Join(g.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		g.t.Fatal(err)
	}
	return path
}

// hup asks the agent to read its rule file again.
func (g *agentNode) hup() { g.agent.Process.Signal(syscall.SIGHUP) }
