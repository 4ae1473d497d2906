package kernel

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// newOverlap has an engine whose hooks the next one, with the same rules, is about to take.
func newOverlap(t *testing.T) *pairLab {
	t.Helper()
	g := newPairLab(t, webRules)
	g.must(t, g.engine.Close())
	g.options.MaxStates /= 2
	g.open(t)
	g.interfaces(t)
	g.must(t, g.engine.Load(compile(t, webRules)))
	return g
}

// follow is the first step, with so many programs at the two hooks afterwards.
func (g *pairLab) follow(t *testing.T, programs int) (hooks []*previousHook) {
	t.Helper()
	g.must(t, g.locked(func() (err error) {
		hooks, err = g.engine.followHooksLocked(g.server.Netlink())
		return err
	}))
	if n := g.chain(t); len(hooks) != 1 || n != programs {
		t.Fatalf("%d programs at %d hooks of the engine before", n, len(hooks))
	}
	return hooks
}

func (g *pairLab) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (g *pairLab) locked(f func() error) error {
	g.engine.mu.Lock()
	defer g.engine.mu.Unlock()
	return g.server.Do(f)
}

// chain returns how many programs are at the hooks of the server.
func (g *pairLab) chain(t *testing.T) int {
	t.Helper()
	n := 0
	g.must(t, g.server.Do(func() error {
		for d := range directions {
			at, err := link.QueryPrograms(link.QueryOptions{Target: int(g.index),
				Attach: directions[d].attach})
			if err != nil {
				return err
			}
			n += len(at.Programs)
		}
		return nil
	}))
	return n
}

// TestFlowsThatBeginBeforeTheSwitch: a connection whose SYN met another engine after its states
// were copied opens when our programs decide, although our table does not know it yet: the answer
// to the SYN passes. What no rule allows does not pass at any moment.
func TestFlowsThatBeginBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	g := newOverlap(t)
	e, hooks := g.engine, g.follow(t, 4)
	// The server's answer waits until it knows the client's link-layer address.
	g.must(t, g.client.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("8"), 0)
	}))
	run(t, g.client, "ip neigh replace 10.0.0.1 dev eth0 nud permanent lladdr "+mac(t, g.server))
	run(t, g.server, "ip neigh flush dev eth0")
	type result struct {
		c   net.Conn
		err error
	}
	dialed := make(chan result, 1)
	go func() {
		c, err := g.dial("10.0.0.1:80")
		dialed <- result{c, err}
	}()
	time.Sleep(200 * time.Millisecond)
	g.must(t, g.locked(func() error { return e.switchHooksLocked(nil, hooks) }))
	if n := len(g.states(t)); n != 0 {
		t.Fatalf("%d states before the switch: ours do something", n)
	}
	run(t, g.server, "ip neigh replace 10.0.0.2 dev eth0 nud permanent lladdr "+mac(t, g.client))
	before := <-dialed
	g.must(t, before.err)
	defer before.c.Close()
	during, err := g.dial("[fd00::1]:80")
	g.must(t, err)
	defer during.Close()
	g.must(t, echoWord(during, "by the new engine"))
	g.refused(t, "at the switch")
	if n := len(g.states(t)); n != 1 {
		t.Fatalf("%d states, want one: that of the flow which began after the switch", n)
	}

	g.must(t, g.locked(func() error { return e.setOverlapLocked(overlapOurs) }))
	g.refused(t, "when ours decide alone")
	g.must(t, echoWord(during, "when ours decide alone"))
	g.must(t, g.locked(func() error { return e.setOverlapLocked(overlapBoth) }))

	g.must(t, g.locked(func() error { return e.keepHooksLocked(hooks) }))
	if n := g.chain(t); n != 2 || e.config.Overlap != overlapNone {
		t.Errorf("%d programs at two hooks, overlap %d", n, e.config.Overlap)
	}
	g.must(t, echoWord(before.c, "afterwards"))
	g.must(t, echoWord(during, "afterwards"))
	g.refused(t, "afterwards")
	nstest.Eventually(t, "every connection is strict", g.strict)
}

func run(t *testing.T, n *nstest.Node, command string) {
	t.Helper()
	words := strings.Fields(command)
	if out, err := n.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

func mac(t *testing.T, n *nstest.Node) (address string) {
	t.Helper()
	if err := n.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			address = i.HardwareAddr.String()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return address
}

// refused fails if a port opens that no rule allows.
func (g *pairLab) refused(t *testing.T, when string) {
	t.Helper()
	for _, address := range []string{"10.0.0.1:81", "[fd00::1]:81"} {
		if c, err := g.connect(address); err == nil {
			c.Close()
			t.Errorf("%s: %s answers", when, address)
		}
	}
}

// TestNoOverlapBesideOthers: another program behind the hook must see what passes, so
// ours replace those of the other engine from one packet to the next.
func TestNoOverlapBesideOthers(t *testing.T) {
	t.Parallel()
	g := newOverlap(t)
	const next = -1 // TCX_NEXT
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, next), asm.Return()}})
	g.must(t, err)
	defer p.Close()
	var other link.Link
	g.must(t, g.server.Do(func() (err error) {
		other, err = link.AttachTCX(link.TCXOptions{Interface: int(g.index), Program: p,
			Attach: directions[1].attach, Anchor: link.Tail()})
		return err
	}))
	defer other.Close()
	e, hooks := g.engine, g.follow(t, 3)
	g.must(t, g.locked(func() error { return e.switchHooksLocked(nil, hooks) }))
	if n := g.chain(t); n != 3 || e.config.Overlap != overlapNone {
		t.Errorf("%d programs at two hooks, overlap %d", n, e.config.Overlap)
	}
	g.must(t, g.locked(func() error { return e.keepHooksLocked(hooks) }))
}

// TestOverlapIsUndone: where the switch fails, the other engine guards alone, as before.
func TestOverlapIsUndone(t *testing.T) {
	t.Parallel()
	g := newOverlap(t)
	e, hooks := g.engine, g.follow(t, 4)
	before, err := g.dial("10.0.0.1:80")
	g.must(t, err)
	defer before.Close()
	g.must(t, g.locked(func() error { return e.switchHooksLocked(nil, hooks) }))
	g.must(t, g.locked(func() error { return e.leaveHooksLocked(hooks, nil) }))
	if n := g.chain(t); n != 2 || e.config.Overlap != overlapNone {
		t.Errorf("%d programs at two hooks, overlap %d", n, e.config.Overlap)
	}
	g.must(t, echoWord(before, "afterwards"))
	g.refused(t, "afterwards")
	g.attach(t) // as the agent does when it tries again
	g.must(t, echoWord(before, "by the new engine"))
	g.refused(t, "by the new engine")
	if s := firewall.DefaultOptions().MaxStates / 2; g.chain(t) != 2 ||
		int(e.objects.States.MaxEntries()) != int(setsFor(s)) {
		t.Errorf("%d programs at two hooks", g.chain(t))
	}
}
