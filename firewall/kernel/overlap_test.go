package kernel

import (
	"net"
	"os"
	"path/filepath"
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

// kill ends the engine as kill -9 does: what is not pinned goes.
func (g *pairLab) kill(t *testing.T, hooks []*previousHook) {
	t.Helper()
	for _, h := range hooks {
		for d := range directions {
			for _, l := range []link.Link{h.ours[d], h.links[d]} {
				if l != nil {
					g.must(t, l.Close())
				}
			}
		}
		delete(g.engine.links, h.index)
	}
	g.must(t, g.engine.Close())
}

// TestKilledInOverlap: the agent is killed at any step of an upgrade, and the next one starts while
// the other engine is there, or when its links are gone, as with a network card that comes again.
// Nothing passes that no rule allows, and the overlap is over.
func TestKilledInOverlap(t *testing.T) {
	t.Parallel()
	for _, overlap := range []uint32{overlapTheirs, overlapBoth, overlapOurs} {
		for _, alone := range []bool{false, true} {
			g := newOverlap(t)
			hooks := g.follow(t, 4)
			g.must(t, g.locked(func() error { return g.engine.setOverlapLocked(overlap) }))
			others := g.engine.previous.dir
			g.kill(t, hooks)
			if n := g.chain(t); n != 2 {
				t.Fatalf("%d programs after the kill", n)
			}
			g.refused(t, "by the other engine")
			if alone {
				g.must(t, g.server.Do(func() error { return removeHookPins(others, g.index) }))
			}
			g.open(t)
			g.interfaces(t)
			g.must(t, g.engine.Load(compile(t, webRules)))
			g.attach(t)
			if n := g.chain(t); n != 2 || g.engine.config.Overlap != overlapNone {
				t.Errorf("overlap %d: %d programs, overlap %d", overlap, n,
					g.engine.config.Overlap)
			}
			g.refused(t, "by the new engine")
			c, err := g.dial("10.0.0.1:80")
			g.must(t, err)
			g.must(t, echoWord(c, "by the new engine"))
			g.must(t, c.Close())
		}
	}
}

// TestKilledBetweenHooks: the agent is killed when the hook of one direction is ours alone, and
// that of the other one is the other engine's. Neither goes until the next one has both, which does
// not overlap: what ours refuse would pass where nothing stands behind them.
func TestKilledBetweenHooks(t *testing.T) {
	t.Parallel()
	g := newOverlap(t)
	hooks := g.follow(t, 4)
	g.must(t, g.locked(func() error { return g.engine.setOverlapLocked(overlapBoth) }))
	g.must(t, g.locked(func() error { return g.engine.setOverlapLocked(overlapOurs) }))
	g.must(t, g.locked(func() error { return g.engine.keepOursLocked(hooks[0], 0) }))
	g.kill(t, hooks)
	g.refused(t, "by both engines")
	g.open(t)
	g.interfaces(t)
	g.must(t, g.engine.Load(compile(t, webRules)))
	if n := g.chain(t); n != 2 {
		t.Errorf("%d programs at two hooks before Attach", n)
	}
	g.refused(t, "before Attach")
	var may bool
	g.must(t, g.locked(func() (err error) {
		may, err = g.engine.mayOverlap(g.server.Netlink(), nil)
		return err
	}))
	if may {
		t.Error("both engines may overlap where ours stand alone")
	}
	g.attach(t)
	others, err := otherLayouts(g.engine.dir)
	if g.must(t, err); len(others) > 0 {
		t.Errorf("%v is left", others)
	}
	pins, err := filepath.Glob(filepath.Join(g.engine.dir, hookPins))
	if g.must(t, err); g.chain(t) != 2 || len(pins) != 2 {
		t.Errorf("%d programs at two hooks, pins %v", g.chain(t), pins)
	}
	g.refused(t, "by the new engine")
}

// TestInterfaceThatWentBeforeTheUpgrade: while no agent ran, an interface of the other engine went.
// Its pins hold nothing back: the other engine ends, and every connection is strict.
func TestInterfaceThatWentBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	run(t, g.server, "ip link add gone type veth peer name peer")
	run(t, g.server, "ip link set gone up")
	g.must(t, g.server.Do(func() error {
		i, err := net.InterfaceByName("gone")
		if err == nil {
			_, err = g.engine.Attach(uint32(i.Index))
		}
		return err
	}))
	c, err := g.dial("10.0.0.1:80")
	g.must(t, err)
	defer c.Close()
	g.must(t, echoWord(c, "before"))
	g.must(t, g.engine.Close())
	run(t, g.server, "ip link delete gone")
	g.options.MaxStates /= 2
	g.open(t)
	g.interfaces(t)
	g.must(t, g.engine.Load(compile(t, webRules)))
	g.attach(t)
	others, err := otherLayouts(g.engine.dir)
	if g.must(t, err); len(others) > 0 {
		t.Errorf("%v is left", others)
	}
	g.must(t, echoWord(c, "afterwards"))
	nstest.Eventually(t, "every connection is strict", g.strict)
}
