package kernel

import (
	"os"
	"path/filepath"
	"testing"
)

// TestIdleHookOfTheLoopback: the hook of the loopback of an engine that died after the last port
// went, and before it let go of the hook, goes with the next engine.
func TestIdleHookOfTheLoopback(t *testing.T) {
	t.Parallel()
	for _, noTCX := range []bool{false, true} {
		g := newPairLab(t, webRules)
		g.engine.noTCX = noTCX
		clean := g.tc(t, "qdisc show dev lo")
		err := g.server.Do(func() error {
			g.engine.mu.Lock()
			defer g.engine.mu.Unlock()
			return g.engine.attachLocalLocked()
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.engine.Close(); err != nil {
			t.Fatal(err)
		}
		name := localLink
		if noTCX {
			name = localFilter
		}
		pin := filepath.Join(g.engine.dir, name)
		if _, err := os.Stat(pin); err != nil {
			t.Fatal(err)
		}
		g.open(t)
		g.engine.noTCX = noTCX
		g.interfaces(t)
		if err := g.server.Do(func() error {
			return g.engine.Load(compile(t, webRules))
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(pin); !os.IsNotExist(err) {
			t.Errorf("without tcx %v: %s is still there: %v", noTCX, pin, err)
		}
		if out := g.tc(t, "qdisc show dev lo"); out != clean {
			t.Errorf("without tcx %v: left\n%sbefore\n%s", noTCX, out, clean)
		}
	}
}
