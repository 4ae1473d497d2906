package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/rule"
)

const webRules = `add 1 check-state
add allow tcp from any to me 80 setup keep-state
`

func compile(t testing.TB, text string) *rule.Program {
	t.Helper()
	return enginetest.Compile(t, text, rule.CompileOptions{Strict: true})
}

// pairLab is a server node behind an engine, and a client node.
type pairLab struct {
	server, client *nstest.Node
	dir            string
	options        firewall.Options
	engine         *Engine
	index          uint32
}

func newPairLab(t *testing.T, rules string) *pairLab {
	return newPairLabWith(t, rules, firewall.DefaultOptions())
}

// joinPair makes the two hosts without an engine. The server echoes on the ports 80 and 81.
func joinPair(t *testing.T, o firewall.Options) *pairLab {
	t.Helper()
	lab := nstest.New(t)
	g := &pairLab{options: o, server: lab.Node("server"), client: lab.Node("client"),
		dir: filepath.Join(nstest.Bpffs(t), "weir")}
	lab.Join(g.server, "eth0", "10.0.0.1/24 fd00::1/64", g.client, "eth0", "10.0.0.2/24 fd00::2/64")
	for _, port := range []int{80, 81} {
		l, err := g.server.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go nstest.Echo(l)
	}
	if err := g.server.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			g.index = uint32(i.Index)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return g
}

func newPairLabWith(t *testing.T, rules string, o firewall.Options) *pairLab {
	t.Helper()
	g := joinPair(t, o)
	g.open(t)
	g.interfaces(t)
	if err := g.engine.Load(compile(t, rules)); err != nil {
		t.Fatal(err)
	}
	g.attach(t)
	t.Cleanup(func() {
		if err := errors.Join(g.engine.Close(), g.server.Do(func() error {
			return Remove(g.dir)
		})); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(g.dir, "*")); len(left) > 0 {
			t.Errorf("Remove left %v", left)
		}
	})
	return g
}

func (g *pairLab) open(t *testing.T) {
	t.Helper()
	err := g.server.Do(func() (err error) {
		g.engine, err = openShared(t, Config{Dir: g.dir, Options: g.options})
		return err
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
}

func (g *pairLab) attach(t *testing.T) {
	t.Helper()
	if err := g.server.Do(func() error {
		_, err := g.engine.Attach(g.index)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func (g *pairLab) interfaces(t *testing.T) {
	t.Helper()
	prefixes, err := nstest.Prefixes("10.0.0.1/24 fd00::1/64")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.engine.SetInterfaces([]firewall.Interface{{Index: g.index, Name: "eth0",
		Addrs: prefixes}}); err != nil {
		t.Fatal(err)
	}
}

func (g *pairLab) dial(to string) (net.Conn, error) { return dialFrom(g.client, to, testTimeout) }

// connect dials where no host should answer.
func (g *pairLab) connect(to string) (net.Conn, error) {
	return dialFrom(g.client, to, 700*time.Millisecond)
}

func dialFrom(n *nstest.Node, to string, most time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return n.DialContext(ctx, "tcp", to)
}

// testTimeout is for what has to come, on however busy a machine. It is also enough for a second
// SYN. An ICMP error that comes back at once finds the socket locked by connect(2) and is only
// recorded there. It is the error about the second SYN that ends the attempt.
const testTimeout = 5 * time.Minute

// shortWait is for what must not come.
const shortWait = 1500 * time.Millisecond

// waitTime is how long to wait for what should come, or should not.
func waitTime(should bool) time.Duration {
	if should {
		return testTimeout
	}
	return shortWait
}

// echoWord sends a word and wants it back.
func echoWord(c net.Conn, word string) error { return echoWordFor(c, word, testTimeout) }

// echoEach does so over each connection.
func echoEach(t *testing.T, open []net.Conn, word string) {
	t.Helper()
	for i, c := range open {
		if err := echoWord(c, word); err != nil {
			t.Errorf("%s: flow %d: %v", word, i, err)
		}
	}
}

// echoWordFor is echoWord that waits some time at most. The word is sent in any case.
func echoWordFor(c net.Conn, word string, most time.Duration) error {
	if _, err := c.Write([]byte(word)); err != nil {
		return err
	}
	c.SetReadDeadline(time.Now().Add(most))
	b := make([]byte, len(word))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != word {
		return fmt.Errorf("sent %q, received %q", word, b)
	}
	return nil
}

func (g *pairLab) states(t *testing.T) (all []firewall.State) {
	t.Helper()
	for s, err := range g.engine.States() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func TestServerBehindTheEngine(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	for _, host := range []string{"10.0.0.1", "[fd00::1]"} {
		c, err := g.dial(host + ":80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := echoWord(c, "hello"); err != nil {
			t.Error(err)
		}
		if c, err := g.connect(host + ":81"); err == nil {
			c.Close()
			t.Errorf("%s:81 is open", host)
		}
	}
	states := g.states(t)
	if len(states) != 2 {
		t.Fatalf("states: %+v", states)
	}
	for _, s := range states {
		// Three packets from the client (SYN, ACK, data; perhaps an ACK), two or three back.
		if s.Rule != 101 || s.To.Port() != 80 || s.Packets[0] < 3 || s.Packets[1] < 2 ||
			s.Phase.String() != "established" {
			t.Errorf("state %+v", s)
		}
	}
	rules, err := g.engine.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if rules[0].Packets != 0 || rules[1].Packets < 10 || rules[2].Packets < 2 {
		t.Errorf("counters %+v", rules)
	}
}

func TestNextEngineTakesOver(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	c, err := g.dial("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := echoWord(c, "before"); err != nil {
		t.Fatal(err)
	}
	if err := g.engine.Close(); err != nil {
		t.Fatal(err)
	}
	if err := echoWord(c, "without"); err != nil {
		t.Errorf("the process is gone: %v", err)
	}
	if c, err := g.connect("10.0.0.1:81"); err == nil {
		c.Close()
		t.Error("the process is gone: port 81 is open")
	}
	g.open(t)
	if !g.engine.TakenOver() {
		t.Error("not taken over")
	}
	if states := g.states(t); len(states) != 1 || states[0].Packets[0] < 4 {
		t.Errorf("states after taking over: %+v", states)
	}
	before, err := g.engine.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != 3 || before[1].Packets < 8 {
		t.Errorf("counters after taking over: %+v", before)
	}
	if err := g.server.Do(func() error { return g.engine.Load(compile(t, webRules)) }); err != nil {
		t.Fatal(err)
	}
	g.interfaces(t)
	if err := echoWord(c, "after"); err != nil {
		t.Error(err)
	}
	after, err := g.engine.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if after[1].Packets <= before[1].Packets {
		t.Errorf("counters: %+v, then %+v", before, after)
	}
	// The rule goes, and its states with it.
	if err := g.engine.Load(compile(t, "add 1 check-state\n")); err != nil {
		t.Fatal(err)
	}
	if states := g.states(t); len(states) != 0 {
		t.Errorf("states of a rule that is gone: %+v", states)
	}
	if err := echoWordFor(c, "cut", shortWait); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the rule is gone: %v", err)
	}
}

func TestDetachStopsEvaluation(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, "add deny ip from any to any\n")
	if c, err := g.connect("10.0.0.1:80"); err == nil {
		c.Close()
		t.Fatal("port 80 is open under deny")
	}
	if err := g.server.Do(func() error { return g.engine.Detach(g.index) }); err != nil {
		t.Fatal(err)
	}
	c, err := g.dial("10.0.0.1:80")
	if err != nil {
		t.Fatalf("after Detach: %v", err)
	}
	c.Close()
}

func TestAdoptedConnectionsContinue(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, "add allow ip from any to any\n")
	c, err := g.dial("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := compile(t, webRules)
	if err := g.engine.Load(p); err != nil {
		t.Fatal(err)
	}
	from, to := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
	n, err := g.engine.Adopt([]firewall.State{{Proto: 6, From: from, To: to, Key: p.Rules[1].Key,
		Rule: p.Rules[1].Number}})
	if n != 1 || err != nil {
		t.Fatalf("adopted %d: %v", n, err)
	}
	if err := echoWord(c, "adopted"); err != nil {
		t.Error(err)
	}
	states := g.states(t)
	if len(states) != 1 || states[0].From != from || states[0].Phase.String() != "established" ||
		states[0].Packets[1] == 0 {
		t.Errorf("states: %+v", states)
	}
	if n, err := g.engine.DeleteStates(func(s firewall.State) bool {
		return s.From == from
	}); n != 1 || err != nil {
		t.Errorf("cut %d: %v", n, err)
	}
	if err := echoWordFor(c, "outsider", shortWait); err == nil {
		t.Error("the connection continues after its state was cut")
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, `add allow tcp from any to any established
add allow icmp from any to any
add allow ip6 from any to any proto ipv6-icmp
add reset tcp from any to any 81 in
add reset tcp from any to any 90 out
add unreach host ip4 from any to any 82
add unreach6 admin-prohib ip6 from any to any 82
add allow ip from any to any
`)
	for i, host := range []string{"10.0.0.1", "[fd00::1]"} {
		if _, err := g.dial(host + ":81"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s:81: %v, not refused", host, err)
		}
		rules, err := g.engine.Rules()
		if err != nil {
			t.Fatal(err)
		}
		if n := rules[3].Packets; n != uint64(i+1) {
			t.Errorf("%s:81: refused after %d packets, not at the first try", host, n-uint64(i))
		}
		if _, err := dialFrom(g.client, host+":82", testTimeout); !errors.Is(err,
			unix.EHOSTUNREACH) && !errors.Is(err, unix.EACCES) {
			t.Errorf("%s:82: %v, not unreachable", host, err)
		}
	}
	for _, host := range []string{"10.0.0.2", "[fd00::2]"} {
		if _, err := dialFrom(g.server, host+":90", testTimeout); !errors.Is(err,
			unix.ECONNREFUSED) {
			t.Errorf("out to %s:90: %v, not refused", host, err)
		}
		if _, err := dialFrom(g.server, host+":82", testTimeout); !errors.Is(err,
			unix.EHOSTUNREACH) && !errors.Is(err, unix.EACCES) {
			t.Errorf("out to %s:82: %v, not unreachable", host, err)
		}
	}
}

// TestWithoutTCX does as on kernels before 6.6: filters below clsact.
func TestWithoutTCX(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	if err := g.server.Do(func() error { return g.engine.Detach(g.index) }); err != nil {
		t.Fatal(err)
	}
	g.engine.noTCX = true
	var hook string
	if err := g.server.Do(func() (err error) {
		hook, err = g.engine.Attach(g.index)
		return err
	}); err != nil || hook != "clsact" {
		t.Fatalf("attached by %q: %v", hook, err)
	}
	guards := func(when string, port81 bool) {
		t.Helper()
		c, err := g.dial("10.0.0.1:80")
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		defer c.Close()
		if err := echoWord(c, "hello"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		c, err = g.connect("[fd00::1]:81")
		if err == nil {
			c.Close()
		}
		if open := err == nil; open != port81 {
			t.Errorf("%s: port 81 is open: %v", when, open)
		}
	}
	guards("by clsact", false)
	if err := g.engine.Close(); err != nil {
		t.Fatal(err)
	}
	guards("the process is gone", false)
	g.open(t)
	guards("taken over", false)
	if a := g.engine.links[g.index]; a == nil || a.hook() != "clsact" {
		t.Fatalf("taken over: %+v", a)
	}
	if err := g.server.Do(func() error { return g.engine.Detach(g.index) }); err != nil {
		t.Fatal(err)
	}
	guards("detached", true)
	g.attach(t)
	guards("attached again", false)
	if out, _ := g.server.Command("tc", "filter", "show", "dev", "eth0",
		"ingress").CombinedOutput(); len(out) > 0 {
		t.Logf("filters: %s", out)
	}
}

// TestPreviousLayoutIsReplaced takes over from a Weir whose pins mean something else: it guards
// until we do, and leaves no trace.
func TestPreviousLayoutIsReplaced(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, "add deny ip from any to any\n")
	if err := g.engine.Close(); err != nil {
		t.Fatal(err)
	}
	previous := filepath.Join(g.dir, "layout-0")
	if err := os.Rename(layoutDir(g.dir), previous); err != nil {
		t.Fatal(err)
	}
	g.open(t)
	if g.engine.TakenOver() {
		t.Error("took over what it cannot read")
	}
	g.interfaces(t)
	if err := g.engine.Load(compile(t, webRules)); err != nil {
		t.Fatal(err)
	}
	if c, err := g.connect("10.0.0.1:80"); err == nil {
		c.Close()
		t.Error("the previous Weir does not guard any more, and ours not yet")
	}
	g.attach(t)
	c, err := g.dial("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := echoWord(c, "hello"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(previous); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", previous, err)
	}
}
