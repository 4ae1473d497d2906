package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// call is a TCP connection between two nodes, both ends in our hands.
type call struct {
	name     string
	dialed   net.Conn
	accepted net.Conn
}

// dial opens a connection to an address of a node. The listener stays.
func dial(t *testing.T, from, to *nstest.Node, address string) *call {
	t.Helper()
	l, err := to.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := &call{name: fmt.Sprintf("%s to %s", from, address)}
	if c.dialed, err = from.DialContext(t.Context(), "tcp", address); err != nil {
		t.Fatal(err)
	}
	if c.accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.dialed.Close(); c.accepted.Close() })
	return c
}

// exchange sends a line in each direction and waits for it.
func (c *call) exchange() error { return c.exchangeFor(testTimeout) }

// exchangeFor does so for some time at most.
func (c *call) exchangeFor(most time.Duration) error {
	for _, way := range [][2]net.Conn{{c.dialed, c.accepted}, {c.accepted, c.dialed}} {
		way[1].SetReadDeadline(time.Now().Add(most))
		if _, err := io.WriteString(way[0], "hello\n"); err != nil {
			return err
		}
		if line, err := bufio.NewReaderSize(way[1], 16).ReadString('\n'); err != nil ||
			line != "hello\n" {
			return fmt.Errorf("got %q, %w", line, err)
		}
	}
	return nil
}

// busy keeps a connection sending until the returned function is called, which waits until both
// ends have heard each other ten times more.
func (c *call) busy() (stop func() error) {
	end, done := make(chan struct{}), make(chan error, 1)
	var received atomic.Int64
	go func() {
		for {
			select {
			case <-end:
				done <- nil
				return
			default:
			}
			if err := c.exchange(); err != nil {
				done <- err
				return
			}
			received.Add(1)
		}
	}()
	return func() error {
		for last := received.Load() + 10; received.Load() < last; time.Sleep(time.Millisecond) {
			select {
			case err := <-done:
				return fmt.Errorf("after %d times: %w", received.Load(), err)
			default:
			}
		}
		close(end)
		return <-done
	}
}

const adoptRules = `
add 1 check-state
add 100 allow tcp from any to me 22 setup keep-state
add 200 allow tcp from me to any setup keep-state out
add 65000 deny ip from any to any
`

// TestAdoption: connections are open when the first denying rules come into force. They continue if
// the rules would have allowed their first packet, idle and busy ones, from outside and from
// inside, in both families; others are cut off.
func TestAdoption(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	calls := map[string]*call{
		"idle4": dial(t, p.client, p.server, "10.66.0.1:22"),
		"idle6": dial(t, p.client, p.server, "[fd66::1]:22"),
		"out4":  dial(t, p.server, p.client, "10.66.0.2:443"),
		"out6":  dial(t, p.server, p.client, "[fd66::2]:443"),
	}
	refused := dial(t, p.client, p.server, "10.66.0.1:23")
	for _, c := range append([]*call{refused}, values(calls)...) {
		if err := c.exchange(); err != nil {
			t.Fatalf("%s, before: %v", c.name, err)
		}
	}
	stop := calls["idle4"].busy()
	p.start("--iface", "eth0", "--rules", p.file("etc/weir/rules", adoptRules))
	time.Sleep(time.Second)
	if err := stop(); err != nil {
		t.Errorf("the busy connection: %v", err)
	}
	for name, c := range calls {
		if err := c.exchange(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := refused.exchangeFor(2 * time.Second); err == nil {
		t.Errorf("%s continues although the rules would have refused it", refused.name)
	}
	var s api.Status
	p.json(&s, "status")
	if s.Adopted != 4 {
		t.Errorf("adopted %d connections, want 4", s.Adopted)
	}
	states := p.weir("fw", "states")
	for _, c := range calls {
		end := c.dialed.LocalAddr().String()
		if !strings.Contains(states, end) {
			t.Errorf("no state for %s (%s):\n%s", c.name, end, states)
		}
	}
	if t.Failed() { // who lost what
		t.Logf("%s%+v\n%s", states, s.Problems, p.weir("fw", "show"))
		for _, n := range []*nstest.Node{p.client, p.server} {
			out, err := n.Command("sh", "-c",
				"ip -br addr; ip -6 route; ip neigh; ss -tineo; nstat -az | grep -v ' 0 '").
				CombinedOutput()
			t.Logf("%s: %v\n%s", n, err, out)
		}
	}
}

// TestLongAdoptionAtLoad: the same when the node has run without rules before, and a rule file is
// loaded then.
func TestLongAdoptionAtLoad(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0")
	c := dial(t, p.client, p.server, "10.66.0.1:22")
	refused := dial(t, p.client, p.server, "10.66.0.1:23")
	if err := c.exchange(); err != nil {
		t.Fatalf("without rules: %v", err)
	}
	stop := c.busy()
	p.weir("fw", "load", p.file("my.rules", adoptRules))
	time.Sleep(time.Second)
	if err := stop(); err != nil {
		t.Errorf("the busy connection: %v", err)
	}
	if err := refused.exchangeFor(2 * time.Second); err == nil {
		t.Error("a connection continues that the rules would have refused")
	}
	// A takeover adopts nothing: what is open and has no state was refused.
	p.kill()
	p.start("--iface", "eth0")
	if err := c.exchange(); err != nil {
		t.Errorf("after the takeover: %v", err)
	}
	var s api.Status
	p.json(&s, "status")
	if s.Adopted != 0 || !s.TakenOver {
		t.Errorf("after the takeover: %+v", s)
	}
}

// TestAdoptionAtTakeover: rules that deny come with a restart, after an agent without rules.
func TestAdoptionAtTakeover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0")
	c := dial(t, p.client, p.server, "10.66.0.1:22")
	p.stop()
	p.start("--iface", "eth0", "--rules", p.file("my.rules", adoptRules))
	if err := c.exchange(); err != nil {
		t.Errorf("an open connection was cut off: %v", err)
	}
	var s api.Status
	p.json(&s, "status")
	if s.Adopted != 1 || !s.TakenOver {
		t.Errorf("%+v", s)
	}
}

func values(m map[string]*call) []*call {
	var all []*call
	for _, c := range m {
		all = append(all, c)
	}
	return all
}
