package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// buildWeir builds the binary.
func buildWeir(t *testing.T) string {
	t.Helper()
	weir := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.Command("go", "build", "-o", weir,
		"../../cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return weir
}

// TestSiege is the siege in short: a restart, an attack and a load.
func TestSiege(t *testing.T) {
	siegeInShort(t, restarts[:1], []string{"blind segments, all connections"})
}

// TestLongSiege has every kind of restart, and each kind of attack.
func TestLongSiege(t *testing.T) {
	siegeInShort(t, restarts, []string{"ICMP errors of every kind",
		"blind segments, all connections", "blind segments, adopted connections"})
}

// siegeInShort asserts nothing that depends on the machine's speed: no rate, and no operation that
// was late.
func siegeInShort(t *testing.T, kinds []restart, attacks []string) {
	t.Helper()
	nstest.RequireRoot(t)
	c := config{weir: buildWeir(t), calm: 300 * time.Millisecond, floodFor: 800 * time.Millisecond,
		loadFor: 2 * time.Second, restarts: 1, pods: 3, short: true, out: io.Discard}
	if err := raiseFiles(); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.weirs, err = c.twoLayouts(kinds); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		r, err := c.runRestart(k)
		t.Logf("%+v, %v", r, err)
		if err != nil || r.times != c.restarts || r.probes == 0 || r.passed != 0 {
			t.Errorf("%s: %d of %d probes of refused ports were answered in %d restarts: %v %s",
				k.title(), r.passed, r.probes, r.times, err, r.why)
		}
		if r.kept == 0 || r.lost != 0 {
			t.Errorf("%s: %d of %d connections broke", k.title(), r.lost, r.kept)
		}
	}
	weir := c.contenders()[0]
	for _, s := range slices.Concat(floods, blinds) {
		if !slices.Contains(attacks, s.name) {
			continue
		}
		r, err := c.runFlood(&s, weir, s.rates[0])
		t.Logf("%+v, %v", r, err)
		if err != nil || r.kept == 0 || r.lost != 0 || r.reached == 0 {
			t.Errorf("%s: %d of %d connections broke: %v", s.name, r.lost, r.kept, err)
		}
	}
	for _, l := range loads[:1] {
		l.back = 0 // how soon entries go is a matter of timeouts
		r, err := c.runLoad(l, weir)
		t.Logf("%+v, %v", r, err)
		if err != nil || r.rate == 0 && r.failed == 0 || r.why != "" {
			t.Errorf("%s: lack of space:%s %v", l.name, r.why, err)
		}
	}
}

// TestChaos is the chaos in short, eight disturbances, and TestLongChaos each of them once.
func TestChaos(t *testing.T)     { chaosInShort(t, 8) }
func TestLongChaos(t *testing.T) { chaosInShort(t, len(disturbances)) }

func chaosInShort(t *testing.T, least int) {
	nstest.RequireRoot(t)
	violations, err := config{weir: buildWeir(t), out: io.Discard}.chaosFor(0, least, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

// TestOnly: a name that no scenario has is refused.
func TestOnly(t *testing.T) {
	if err := (config{only: "blind,no such scenario"}).checkOnly(); err == nil ||
		!strings.Contains(err.Error(), `"no such scenario"`) {
		t.Errorf("error %v", err)
	}
	if err := (config{}).checkOnly(); err != nil {
		t.Error(err)
	}
}

// TestLayoutEdits: what an upgrade of the siege changes is in the source.
func TestLayoutEdits(t *testing.T) {
	dir := t.TempDir()
	for _, e := range slices.Concat(layoutEdits[:]...) {
		text, err := os.ReadFile(filepath.Join("../..", e.file))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, e.file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, text, 0o644), e.apply(dir)); err != nil {
			t.Error(err)
		}
	}
}
