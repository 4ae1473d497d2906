package kernel

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// newUpgrade has an engine whose hooks the next one, with the same rules, is about to take.
func newUpgrade(t *testing.T, rules string) *pairLab {
	t.Helper()
	g := newPairLab(t, rules)
	g.options.MaxStates /= 2
	g.begin(t, rules)
	return g
}

// begin ends the engine and begins the next one, up to its first Load.
func (g *pairLab) begin(t *testing.T, rules string) {
	t.Helper()
	g.must(t, g.engine.Close())
	g.open(t)
	g.interfaces(t)
	g.must(t, g.engine.Load(compile(t, rules)))
}

// follow is the first step: the states are copied, and the hooks are those of the engine before.
func (g *pairLab) follow(t *testing.T) (hooks []*previousHook) {
	t.Helper()
	g.must(t, g.locked(func() (err error) {
		hooks, err = g.engine.followHooksLocked(g.server.Netlink())
		return err
	}))
	if len(hooks) != 1 || !hooks[0].filters[0] && g.chain(t) != 2 {
		t.Fatalf("%d hooks of the engine before, or not two programs", len(hooks))
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

// switchHooks is the second step: our programs decide.
func (g *pairLab) switchHooks(t *testing.T, hooks []*previousHook) {
	t.Helper()
	g.must(t, g.locked(func() error {
		return g.engine.switchHooksLocked(g.server.Netlink(), hooks)
	}))
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

// kill ends the engine as kill -9 does: what is not pinned goes.
func (g *pairLab) kill(t *testing.T, hooks []*previousHook) {
	t.Helper()
	for _, h := range hooks {
		delete(g.engine.links, h.index)
		g.must(t, h.close(false))
	}
	g.must(t, g.engine.Close())
}

// TestKilledBetweenHooks: the agent is killed in an upgrade when all hooks have our programs, and
// the pin of one direction alone is in our place. No hook goes until the next agent has both, and
// nothing passes that no rule allows.
func TestKilledBetweenHooks(t *testing.T) {
	t.Parallel()
	g := newUpgrade(t, webRules)
	hooks := g.follow(t)
	g.switchHooks(t, hooks)
	path := g.engine.linkPath(g.index, 0)
	g.must(t, hooks[0].links[0].Pin(path))
	g.must(t, removeIfThere(filepath.Join(g.engine.previous.dir, filepath.Base(path))))
	g.kill(t, hooks)
	g.refused(t, "after the kill")
	g.open(t)
	g.interfaces(t)
	g.must(t, g.engine.Load(compile(t, webRules)))
	if n := g.chain(t); n != 2 {
		t.Errorf("%d programs at two hooks before Attach", n)
	}
	g.refused(t, "before Attach")
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
	again, err := g.dial("10.0.0.1:80")
	g.must(t, err)
	g.must(t, echoWord(again, "by the new engine"))
	g.must(t, again.Close())
}

// TestKilledResize: a start with tables of another size is killed before it has a hook, and the
// next one has the first size again. Its states are those of the engine that guards, and nothing is
// left of either.
func TestKilledResize(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	size := g.options.MaxStates
	early, err := g.dial("10.0.0.1:80")
	g.must(t, err)
	defer early.Close()
	g.must(t, echoWord(early, "before"))
	g.options.MaxStates = size / 2
	g.begin(t, webRules)
	late, err := g.dial("10.0.0.1:80")
	g.must(t, err)
	defer late.Close()
	g.must(t, echoWord(late, "to the engine that guards"))
	g.options.MaxStates = size
	g.begin(t, webRules)
	if n := g.engine.Migrated(); n != 2 {
		t.Fatalf("%d states were taken over, not 2", n)
	}
	g.attach(t)
	g.must(t, echoWord(early, "after"))
	g.must(t, echoWord(late, "after"))
	others, err := otherLayouts(g.engine.dir)
	if g.must(t, err); len(others) > 0 || g.chain(t) != 2 {
		t.Errorf("%v is left, %d programs at two hooks", others, g.chain(t))
	}
}

// TestKilledUpgradeIsUpToDate: an engine has copied the states of another and is killed before it
// has a hook. The next one has what the states have become since, and what the rules have counted.
func TestKilledUpgradeIsUpToDate(t *testing.T) {
	t.Parallel()
	o := firewall.DefaultOptions()
	o.Timeouts.UDP, o.Timeouts.UDPReply = time.Hour, time.Hour // longer than any busy machine takes
	g := newPairLabWith(t, heldRules, o)
	server, err := g.server.ListenPacket("udp", "10.0.0.1:80")
	g.must(t, err)
	defer server.Close()
	client, err := g.client.DialContext(t.Context(), "udp", "10.0.0.1:80")
	g.must(t, err)
	defer client.Close()
	ask := func() {
		t.Helper()
		g.send(t, client, 1, 10)
		g.must(t, server.SetDeadline(time.Now().Add(testTimeout)))
		_, _, err := server.ReadFrom(make([]byte, 100))
		g.must(t, err)
	}
	look := func() (last int64, counted uint64) { // of the flow, and of all rules
		t.Helper()
		for x, err := range g.engine.entries() {
			g.must(t, err)
			last = max(last, x.sides[0].Last, x.sides[1].Last)
		}
		rules, err := g.engine.Rules()
		g.must(t, err)
		for i := range rules {
			counted += rules[i].Packets
		}
		return last, counted
	}
	ask()
	g.options.MaxStates /= 2
	g.begin(t, heldRules)
	first, before := look()
	if first == 0 || before == 0 {
		t.Fatalf("the flow was copied as of %d, with %d packets", first, before)
	}
	nstest.Eventually(t, "the clock advances", func() bool { return monotonic() > first })
	ask()
	g.begin(t, heldRules)
	if last, counted := look(); last <= first || counted <= before {
		t.Errorf("the last packet was at %d, then at %d; %d packets, then %d", first, last, before,
			counted)
	}
	g.attach(t)
	ask()
}

// TestInterfaceThatWentBeforeTheUpgrade: while no agent ran, an interface of the other engine went.
// Its pins hold nothing back: the other engine ends, and every connection is strict.
func TestInterfaceThatWentBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.server.IP("link add gone type veth peer name peer")
	g.server.IP("link set gone up")
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
	g.server.IP("link delete gone")
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
