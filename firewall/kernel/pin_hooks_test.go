package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestHooksWithoutPins: where no pin can be made, as after the bpf file system was unmounted, an
// interface is guarded all the same. The pins follow when they can be made.
func TestHooksWithoutPins(t *testing.T) {
	t.Parallel()
	for what, noTCX := range map[string]bool{"link": false, "filter": true} {
		g := newPairLab(t, webRules)
		g.detach(t)
		g.engine.noTCX = noTCX
		away := g.dir + "-away"
		if err := os.Rename(g.engine.dir, away); err != nil {
			t.Fatal(err)
		}
		attach := func() error {
			return g.server.Do(func() error {
				_, err := g.engine.Attach(g.index)
				return err
			})
		}
		for range 2 {
			if err := attach(); !errors.Is(err, ErrUnpinned) {
				t.Fatalf("%s without pins: %v", what, err)
			}
			g.answers(t, what+" without pins", "80")
		}
		if err := os.Rename(away, g.engine.dir); err != nil {
			t.Fatal(err)
		}
		if err := attach(); err != nil {
			t.Errorf("%s: with the directory of the pins: %v", what, err)
		}
		if pins, err := filepath.Glob(filepath.Join(g.engine.dir, what+"-*-*")); len(pins) != 2 {
			t.Errorf("%s: pins %v, %v", what, pins, err)
		}
		g.reopen(t)
		g.answers(t, what+" after a restart", "80")
	}
}
