package test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// exchange sends a byte through an echo connection, and waits at most so long for it to come back.
func exchange(c net.Conn, most time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(most)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// echoes serves echo on ports of a node, over both families.
func echoes(t *testing.T, n *nstest.Node, ports ...int) {
	t.Helper()
	for _, port := range ports {
		l, err := n.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go nstest.Echo(l)
	}
}

// connect opens an echo connection to the server.
func (p *pair) connect(host string, port int) net.Conn {
	t := p.t
	t.Helper()
	c, err := p.client.DialContext(t.Context(), "tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := exchange(c, testTimeout); err != nil {
		t.Fatal(err)
	}
	return c
}

// panics runs `weir panic` in the session of an SSH connection, or in none.
func (p *pair) panics(session net.Conn, args ...string) (string, error) {
	cmd := p.server.Command(weir,
		append([]string{"--root", p.root, "--bpffs", p.bpffs, "panic"}, args...)...)
	cmd.Env = []string{}
	if session != nil {
		here, there := session.LocalAddr().(*net.TCPAddr), session.RemoteAddr().(*net.TCPAddr)
		cmd.Env = append(cmd.Env, fmt.Sprintf("SSH_CONNECTION=%s %d %s %d", here.IP, here.Port,
			there.IP, there.Port))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// onlySession wants a connection to continue, others not to, and everything else refused.
func (p *pair) onlySession(when string, session net.Conn, others ...net.Conn) {
	t := p.t
	t.Helper()
	if err := exchange(session, testTimeout); err != nil {
		t.Errorf("%s: the session: %v", when, err)
	}
	for _, c := range others {
		if err := exchange(c, time.Second); err == nil {
			t.Errorf("%s: the connection to %s continues", when, c.RemoteAddr())
		}
	}
	for _, to := range []string{"[fd66::1]:22", "10.66.0.1:22", "10.66.0.1:80"} {
		d, err := p.client.DialContext(timeLimit(t, time.Second), "tcp", to)
		if err == nil {
			d.Close()
			t.Errorf("%s: %s is open", when, to)
		}
	}
	if err := p.client.Command("ping", "-c1", "-W1", "10.66.0.1").Run(); err == nil {
		t.Errorf("%s: ping is answered", when)
	}
}

// TestPanic: the session in which it is given stays, over IPv6, where neighbours must be found, and
// across a crash of the agent. Everything else ends and is refused until the end.
func TestPanic(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	echoes(t, p.server, 22, 80)
	rules := p.file("rules", `add 1 check-state
add 2 allow tcp from any to me 22,80 setup keep-state
add 3 allow icmp from any to me
`)
	p.start("--iface", "eth0", "--rules", rules)
	session, other, web := p.connect("fd66::1", 22), p.connect("fd66::1", 22),
		p.connect("10.66.0.1", 80)
	if out, err := p.panics(nil); err == nil || !strings.Contains(out, "weir panic -f") {
		t.Errorf("without a session: %v, %s", err, out)
	}
	if err := exchange(web, testTimeout); err != nil {
		t.Errorf("a panic that was refused cut a connection: %v", err)
	}
	out, err := p.panics(session)
	if err != nil || !strings.Contains(out, session.LocalAddr().String()) ||
		!strings.Contains(out, "neighbour discovery") || !strings.Contains(out, "not guarded: lo") {
		t.Fatalf("%v, %s", err, out)
	}
	p.onlySession("in panic", session, other, web)
	if err := p.server.Command("ip", "neigh", "flush", "all").Run(); err != nil {
		t.Error(err)
	}
	p.kill()
	p.onlySession("without an agent", session, other, web)
	p.start("--iface", "eth0", "--rules", rules)
	p.onlySession("after a restart", session, other, web)
	if out, _, err := p.try("status"); err == nil || !strings.Contains(out, "panic: since") {
		t.Errorf("status: %v, %s", err, out)
	}
	if _, stderr, err := p.try("fw", "add", "allow", "ip", "from", "any", "to",
		"any"); err == nil ||
		!strings.Contains(stderr, "weir panic --end") {
		t.Errorf("a change: %v, %s", err, stderr)
	}
	if out, err := p.panics(session, "--end"); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	if err := exchange(session, testTimeout); err != nil {
		t.Errorf("the session after the end: %v", err)
	}
	p.connect("fd66::1", 22)
	p.connect("10.66.0.1", 80)
	if out, err := p.panics(nil, "-f"); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	if err := exchange(session, time.Second); err == nil {
		t.Error("a panic without a session spares one")
	}
	p.weir("panic", "--end")
	p.connect("fd66::1", 22)
}

// timeLimit is a context that ends after some time.
func timeLimit(t *testing.T, most time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), most)
	t.Cleanup(cancel)
	return ctx
}
