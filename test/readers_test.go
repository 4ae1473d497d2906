package test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// TestReadersChangeNothing: the socket for those who may look answers questions, refuses every
// change with an error that says why, and is reached by its group alone. Others reach neither
// socket and cannot open the directory. The commands take whichever socket is theirs.
func TestReadersChangeNothing(t *testing.T) {
	t.Parallel()
	need(t, "curl", "setpriv")
	p := newPair(t)
	dir, err := os.MkdirTemp("", "weir-readers-") // where others may go
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.root = filepath.Join(dir, "root")
	program := filepath.Join(dir, "weir")
	binary, err := os.ReadFile(weir)
	if err == nil {
		err = os.WriteFile(program, binary, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	old := syscall.Umask(0) // of the agent, too
	p.start("--iface", "eth0", "--rules", webRules(t))
	syscall.Umask(old)
	run := filepath.Join(p.root, "run/weir")
	for file, want := range map[string]os.FileMode{"": os.ModeDir | 0o711,
		"weir.sock": os.ModeSocket | 0o600} {
		if info, err := os.Stat(filepath.Join(run, file)); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, want %v, %v", file, info.Mode(), want, err)
		}
	}
	read := filepath.Join(run, "read.sock")
	if info, err := os.Stat(read); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("read.sock has mode %v, %v", info.Mode(), err)
	}
	before := p.weir("fw", "list")
	code := func(socket string, args ...string) string {
		t.Helper()
		args = append([]string{"-s", "-w", "\n%{http_code}", "--unix-socket", socket}, args...)
		out, err := p.server.Command("curl", args...).Output()
		if err != nil {
			t.Fatalf("curl %v: %v", args, err)
		}
		return string(out)
	}
	for path, want := range map[string]string{"/v1/status": "200", "/v1/rules": "200",
		"/v1/states": "200", "/v1/pods": "200", "/v1/peers": "200", "/metrics": "200",
		"/": "200", "/v1/packets": "403", "/v1/nothing": "403"} {
		if out := code(read, "http://localhost"+path); !strings.HasSuffix(out, "\n"+want) {
			t.Errorf("GET %s: %s, want %s", path, out[max(0, len(out)-200):], want)
		}
	}
	for _, path := range []string{"do", "load", "confirm", "revert", "states/delete", "down",
		"pods", "pods/detach", "pods/check", "pods/gc", "peers", "peers/remove", "peers/key"} {
		out := code(read, "-d", `{"line":"-f flush"}`, "http://localhost/v1/"+path)
		if !strings.HasSuffix(out, "\n403") || !strings.Contains(out, "is read-only") ||
			!strings.Contains(out, "run as root") {
			t.Errorf("POST %s: %s", path, out)
		}
	}
	if out := code(read, "-d", `{"packet":"tcp 192.0.2.1:1 -> 10.66.0.1:80"}`,
		"http://localhost/v1/why"); !strings.HasSuffix(out, "\n200") {
		t.Errorf("why: %s", out)
	}
	for _, socket := range []string{read, filepath.Join(run, "weir.sock")} {
		for _, header := range []string{"Host: weir", "Host: evil.example",
			"Origin: http://evil.example", "Sec-Fetch-Site: cross-site"} {
			if out := code(socket, "-H", header, "-d", `{"line":"-f flush"}`,
				"http://localhost/v1/do"); !strings.HasSuffix(out, "\n403") ||
				strings.Contains(out, "is read-only") {
				t.Errorf("%s with %s: %s", socket, header, out)
			}
		}
	}

	p.asReaders(t, program, run)
	if now := p.weir("fw", "list"); now != before {
		t.Errorf("the rules were\n%s and are\n%s", before, now)
	}
}

// asReaders runs commands as other users: 65534 has no rights, and 4242 stands for group weir.
func (p *pair) asReaders(t *testing.T, program, run string) {
	t.Helper()
	read := filepath.Join(run, "read.sock")
	if err := os.Chown(read, 0, 4242); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(read, 0o660); err != nil {
		t.Fatal(err)
	}
	as := func(groups string, args ...string) string {
		t.Helper()
		args = append([]string{"--reuid=65534", "--regid=65534", groups, program, "--root", p.root},
			args...)
		out, err := p.server.Command("setpriv", args...).CombinedOutput()
		return fmt.Sprintf("%s%v", out, err)
	}
	for _, command := range [][]string{{"status"}, {"fw", "list"}, {"fw", "states"},
		{"peer", "list"},
		{"pod", "list"}, {"fw", "why", "tcp 192.0.2.1:1 -> 10.66.0.1:80"}} {
		if out := as("--groups=4242", command...); !strings.HasSuffix(out, "<nil>") {
			t.Errorf("a reader's weir %v: %s", command, out)
		}
	}
	if out := as("--groups=4242", "demo"); strings.Contains(out, "making") ||
		!strings.Contains(out, "permission denied\nhint: run as root\n") {
		t.Errorf("a reader's weir demo: %s", out)
	}
	if out := as("--groups=4242", "fw", "-f", "flush"); strings.HasSuffix(out, "<nil>") {
		t.Errorf("a reader flushes: %s", out)
	}
	for _, command := range [][]string{{"fw", "add", "deny", "ip", "from", "any", "to", "any"},
		{"down"}, {"flow", "capture", "-w", "-"}} {
		if out := as("--groups=4242", command...); !strings.Contains(out, "is read-only") ||
			!strings.Contains(out, "run as root") {
			t.Errorf("a reader's weir %v: %s", command, out)
		}
	}
	for _, args := range [][]string{{program, "--root", p.root, "status"}, {"ls", run},
		{"flock", "-n", run, "true"}, {"touch", filepath.Join(run, "x")}} {
		out, err := p.server.Command("setpriv",
			append([]string{"--reuid=65534", "--regid=65534", "--clear-groups"},
				args...)...).CombinedOutput()
		if err == nil || !strings.Contains(strings.ToLower(string(out)), "permi") {
			t.Errorf("a outsider's %v: %v %s", args, err, out)
		}
	}
}

// TestLongReadersTakeLittle: readers that ask for much at once, and do not read the answers, take
// little memory of the agent. They keep neither its owner nor, for long, other readers from theirs.
func TestLongReadersTakeLittle(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	// so many states that twenty-four answers do not fit, on a machine of any speed
	file := p.file("weir.toml", "[timeouts]\nudp = 300\n[states]\nmax = 65536\n")
	p.start("--config", file, "--iface", "eth0", "--rules",
		p.file("rules", "add allow udp from any to any keep-state\n"))
	f := udpFlood(t, p, 9)
	var status api.Status
	eventually(t, "there are many states", func() error {
		if p.json(&status, "status"); status.States < 60000 {
			return fmt.Errorf("%d states", status.States)
		}
		return nil
	})
	if _, err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	p.weir("fw", "states") // what one answer takes is taken from now on
	before := p.memory()
	const many = 24
	for range many {
		c, err := net.Dial("unix", filepath.Join(p.root, "run/weir/read.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c,
			"GET /v1/states HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	most := before
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		most = max(most, p.memory())
		p.weir("status")
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d states, %d MB before, %d readers take %d MB", status.States, before>>20, many,
		(most-before)>>20)
	// Four answers hold 17 MB each, which the collector of garbage lets double. All would hold
	// 400 MB.
	if most-before > 200<<20 {
		t.Errorf("%d readers take %d MB", many, (most-before)>>20)
	}
	out, err := p.server.Command("curl", "-sf", "--max-time", "250", "--unix-socket",
		filepath.Join(p.root, "run/weir/read.sock"), "http://localhost/v1/rules").CombinedOutput()
	if err != nil {
		t.Errorf("another reader gets no answer: %v %s", err, out)
	}
}

// TestReadersWatch: only so many readers watch the events at once, since events wait for each; the
// next one gets an error, and comes in when one ends. The owner always does.
func TestReadersWatch(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", webRules(t))
	watch := func(socket string) (net.Conn, string) {
		t.Helper()
		c, err := net.Dial("unix", filepath.Join(p.root, "run/weir", socket))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(testTimeout))
		if _, err := io.WriteString(c,
			"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return c, string(b[:n])
	}
	const most = 32
	var last net.Conn
	for i := range most {
		c, answer := watch("read.sock")
		if !strings.HasPrefix(answer, "HTTP/1.1 200") {
			t.Fatalf("reader %d: %s", i, answer)
		}
		last = c
	}
	if _, answer := watch("read.sock"); !strings.HasPrefix(answer, "HTTP/1.1 503") ||
		!strings.Contains(answer, "32 readers watch the events already") {
		t.Errorf("one more: %s", answer)
	}
	if _, answer := watch("weir.sock"); !strings.HasPrefix(answer, "HTTP/1.1 200") {
		t.Errorf("the owner: %s", answer)
	}
	last.Close()
	eventually(t, "the place of one that has ended is another's", func() error {
		if _, answer := watch("read.sock"); !strings.HasPrefix(answer, "HTTP/1.1 200") {
			return errors.New(answer)
		}
		return nil
	})
}

// memory is what the agent has in memory, in bytes.
func (g *agentNode) memory() int {
	g.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", g.agent.Process.Pid))
	if err != nil {
		g.t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		g.t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestStoppedAgent: a client of an agent that does not answer ends when it said that it
// would.
func TestStoppedAgent(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0")
	p.agent.Process.Signal(syscall.SIGSTOP)
	defer p.agent.Process.Signal(syscall.SIGCONT)
	eventually(t, "the agent is stopped", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.agent.Process.Pid))
		if err == nil && !strings.Contains(string(text), ") T ") {
			err = fmt.Errorf("%s", text)
		}
		return err
	})
	begun := time.Now()
	_, stderr, err := p.try("status", "--wait", "2s")
	if took := time.Since(begun); err == nil || took < 1900*time.Millisecond ||
		took > testTimeout {
		t.Errorf("it took %v, %v", took, err)
	}
	if !strings.Contains(stderr, "does not answer") || !strings.Contains(stderr, "kill -CONT") {
		t.Errorf("it says %s", stderr)
	}
	p.agent.Process.Signal(syscall.SIGCONT)
	p.weir("status", "--wait", testTimeout.String())
}
