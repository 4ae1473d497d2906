package kernel

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
)

// removePart guards the loopback by filters, and removes all but these.
func (g *pairLab) removePart(t *testing.T) {
	t.Helper()
	g.engine.noTCX = true
	g.must(t, g.server.Do(func() error { _, err := g.engine.Attach(loopback); return err }))
	g.must(t, g.engine.Close())
	remove := func() error { return Remove(g.dir) }
	if err := withoutNetAdmin(t, g.server, remove); err == nil {
		t.Error("the filters were removed without the capability")
	}
	if out := g.tc(t, "filter show dev lo ingress"); !strings.Contains(out, "weir_in") {
		t.Fatalf("the filter of the loopback is gone: %s", out)
	}
}

// TestRemovedInPart: a removal fails when one interface has no hook any more, a connection
// continues there, and the next engine begins. It does not hold the numbers from before against the
// connection, and adopts it as one that was open already. It leaves nothing of the engine before,
// whether it guards the interface whose hook was left or not.
func TestRemovedInPart(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	s := newStream(t, g, "10.0.0.1:80")
	p := compile(t, webRules)
	state := firewall.State{Proto: 6, Key: p.Rules[1].Key, Rule: p.Rules[1].Number,
		From: s.LocalAddr().(*net.TCPAddr).AddrPort(), To: s.RemoteAddr().(*net.TCPAddr).AddrPort()}
	for _, guarded := range []bool{true, false} {
		g.removePart(t)
		s.flows(t, "without a hook", 20<<20)
		g.open(t)
		if g.engine.TakenOver() {
			t.Error("states that missed packets were taken over")
		}
		g.interfaces(t)
		g.must(t, g.engine.Load(p))
		if _, err := g.engine.Adopt([]firewall.State{state}); err != nil {
			t.Fatal(err)
		}
		g.attach(t)
		s.flows(t, "with the next engine", 20<<20)
		g.engine.noTCX = true
		g.must(t, g.server.Do(func() error {
			if guarded {
				_, err := g.engine.Attach(loopback)
				return err
			}
			return g.engine.Detach(loopback)
		}))
		if out := g.tc(t, "filter show dev lo ingress"); strings.Contains(out, "weir") != guarded {
			t.Errorf("guarded %v, filters of the loopback: %q", guarded, out)
		}
		if left, err := filepath.Glob(filepath.Join(g.dir, "*")); len(left) != 1 || err != nil {
			t.Errorf("pins: %v, %v", left, err)
		}
	}
}

// TestPinRemovedByHand: the pin of a map is removed. The kernel empties slow_paths without a pin
// when the engine ends, so that only established flows pass. The next engine begins all the same,
// with the states if they are there, and leaves nothing of the engine before.
func TestPinRemovedByHand(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	c, err := g.dial("10.0.0.1:80")
	g.must(t, err)
	defer c.Close()
	for _, name := range []string{"slow_paths", "tracks", "states"} {
		g.must(t, echoWord(c, "before the pin goes"))
		g.must(t, os.Remove(filepath.Join(g.engine.dir, name)))
		g.begin(t, webRules)
		g.attach(t)
		g.answers(t, "without the pin of "+name, "80")
		if name != "states" {
			g.must(t, echoWord(c, "without the pin of "+name))
		}
		if left, err := filepath.Glob(filepath.Join(g.dir, "*")); len(left) != 1 || err != nil {
			t.Errorf("pins: %v, %v", left, err)
		}
	}
}
