package test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// sshSession is a connection like that of an owner who works on the host: it sends and gets a line
// again and again.
type sshSession struct {
	net.Conn
	lines *bufio.Reader
	from  string // SSH_CONNECTION
}

// newSession connects the client to an echo on port 22 of the server, 10.66.0.1.
func newSession(t *testing.T, client, server *nstest.Node) *sshSession {
	t.Helper()
	listenEcho(t, server, "10.66.0.1:22")
	return dialSession(t, client)
}

func dialSession(t *testing.T, client *nstest.Node) *sshSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := client.DialContext(ctx, "tcp", "10.66.0.1:22")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	a := c.LocalAddr().(*net.TCPAddr)
	return &sshSession{Conn: c, lines: bufio.NewReader(c),
		from: fmt.Sprintf("SSH_CONNECTION=%v %d 10.66.0.1 22", a.IP, a.Port)}
}

// alive reports whether the session still works.
func (s *sshSession) alive() error {
	s.SetDeadline(time.Now().Add(5 * time.Minute))
	if _, err := s.Write([]byte("date\n")); err != nil {
		return err
	}
	_, err := s.lines.ReadString('\n')
	return err
}

func listenEcho(t *testing.T, on *nstest.Node, address string) {
	t.Helper()
	l, err := on.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go nstest.Echo(l)
}

// closed makes sure that a port of the server does not answer.
func closed(t *testing.T, client *nstest.Node, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c, err := client.DialContext(ctx, "tcp", address); err == nil {
		c.Close()
		t.Errorf("%s is open", address)
	}
}

// setupNotKept answers the question of setup with no.
func (p *pair) setupNotKept(session string) {
	t := p.t
	t.Helper()
	cmd := p.server.Command("env", session, weir, "setup", "--root", p.root, "--bpffs", p.bpffs,
		"--confirm", "1h")
	cmd.Stdin = typed(t, "n\n")
	if out, err := cmd.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "not kept: the previous rules are in force") {
		t.Errorf("not kept: %v\n%s", err, out)
	}
	var s api.Status
	if p.json(&s, "status"); s.Trial != nil || s.Default != "allow" {
		t.Errorf("after an answer of no: %+v", s)
	}
}

// TestSetup: setup keeps what a host serves and the session that asks, on trial. The rule file is
// written when the rules are confirmed, and one that is there is never overwritten unasked.
func TestSetup(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	session := newSession(t, p.client, p.server)
	listenEcho(t, p.server, "0.0.0.0:8080")
	listenEcho(t, p.server, "127.0.0.1:8081")
	listenEcho(t, p.server, "[::]:5432")
	rules := filepath.Join(p.root, "etc/weir/rules")
	setup := func(args ...string) (string, error) {
		cmd := p.server.Command("env", append([]string{session.from, weir, "setup", "--root",
			p.root, "--bpffs", p.bpffs}, args...)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := setup("--dry-run")
	if err != nil || !strings.Contains(out, "add 300 allow tcp from any to me 22 in setup") ||
		!strings.Contains(out, "from any to me 8080 in setup") || strings.Contains(out, "8081") ||
		!strings.Contains(out, "to me 5432 in setup") ||
		strings.Contains(out, "from any to me 5432") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := setup(); err == nil || !strings.Contains(out, "no node is running") {
		t.Errorf("without a node: %v\n%s", err, out)
	}
	p.start("--iface", "eth0")
	if out, err := setup("--confirm", "2s"); err != nil || strings.Contains(out, "warning:") {
		t.Errorf("%v\n%s", err, out)
	}
	eventually(t, "the rules go back", func() error {
		var s api.Status
		if p.json(&s, "status"); s.Trial != nil || s.Default != "allow" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	p.setupNotKept(session.from)
	if _, err := os.Stat(rules); err == nil {
		t.Error("rules that were not confirmed became the rule file")
	}
	if out, err := setup("--confirm", "10m"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	listenEcho(t, p.server, "10.66.0.1:9999")
	for range 3 {
		if err := session.alive(); err != nil {
			t.Fatal(err)
		}
	}
	if err := dialSession(t, p.client).alive(); err != nil {
		t.Error(err)
	}
	closed(t, p.client, "10.66.0.1:9999")
	p.weir("confirm")
	if text, err := os.ReadFile(rules); err != nil || !strings.Contains(string(text), "me 8080") {
		t.Errorf("%v\n%s", err, text)
	}
	p.stop()
	p.start("--iface", "eth0")
	if err := session.alive(); err != nil {
		t.Error(err)
	}
	closed(t, p.client, "10.66.0.1:9999")

	out, err = setup()
	if err == nil || !strings.Contains(out, "there is a rule file already") ||
		!strings.Contains(out, "--force") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := setup("--force", "--confirm", "10m"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	p.weir("confirm")
	if old, _ := filepath.Glob(rules + ".before-*"); len(old) != 1 {
		t.Errorf("the old rule file is kept as %v", old)
	}
	if text, _ := os.ReadFile(rules); !strings.Contains(string(text), "me 9999") &&
		!strings.Contains(string(text), "10.66.0.1 9999") {
		t.Errorf("the new rule file is\n%s", text)
	}
}

// TestReadme does what the first page says on a host that is reached through a session, in a
// namespace with directories of its own. The session lives, and another one can be opened. The
// rules that the page shows let the session in, too.
func TestReadme(t *testing.T) {
	t.Parallel()
	need(t, "unshare")
	all := steps(t, "../README.md")
	if len(all) != 1 {
		t.Fatalf("the page has %d blocks of commands", len(all))
	}
	lab := nstest.New(t)
	client, server := lab.Node("client"), lab.Node("server")
	lab.Join(client, "eth0", "10.66.0.2/24", server, "eth0", "10.66.0.1/24")
	session := newSession(t, client, server)
	dir := t.TempDir()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(text), "```\n")
	shown, _, _ = strings.Cut(shown, "```")
	if !strings.Contains(shown, "check-state") {
		t.Fatalf("the first block holds no rules:\n%s", shown)
	}
	if err := os.WriteFile(filepath.Join(dir, "shown"), []byte(shown), 0o644); err != nil {
		t.Fatal(err)
	}
	// Not a function: the trap would end the shell that runs one in the background, not its
	// program.
	sudo := "#!/bin/sh\nexec \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "sudo"), []byte(sudo), 0o755); err != nil {
		t.Fatal(err)
	}
	script := "set -e\ntrap 'kill $(jobs -p)' EXIT\nfor d in /run /var/lib /etc; do mount -t tmpfs none $d; done\n" +
		"mount -t bpf none /sys/fs/bpf\nmake() { :; }\n" +
		fmt.Sprintf("cd %s\nPATH=$PWD:$PATH\nmkdir bin\nln -s %s bin/weir\n", dir, weir) +
		all[0].commands +
		"./bin/weir fw load --confirm 10m shown 2> warned\n./bin/weir confirm\ntouch tried\n" +
		"until [ -e seen ]; do sleep .1; done\n./bin/weir down\nwait\ntrap - EXIT\n"
	cmd := server.Command("unshare", "-m", "--propagation", "private", "env", session.from, "bash",
		"-c", script)
	out := &programOutput{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually(t, "the commands are done", func() error {
		if err := session.alive(); err != nil {
			t.Fatalf("the session is cut: %v\n%s", err, out)
		}
		select {
		case err := <-ended:
			t.Fatalf("a command failed: %v\n%s", err, out)
		default:
		}
		if _, err := os.Stat(filepath.Join(dir, "tried")); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	if err := dialSession(t, client).alive(); err != nil {
		t.Errorf("a second session: %v\n%s", err, out)
	}
	if warned, err := os.ReadFile(filepath.Join(dir, "warned")); err != nil || len(warned) > 0 {
		t.Errorf("the rules of the page: %v, %s", err, warned)
	}
	listenEcho(t, server, "10.66.0.1:9999")
	closed(t, client, "10.66.0.1:9999")
	if err := os.WriteFile(filepath.Join(dir, "seen"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
