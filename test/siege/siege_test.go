package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// buildWeir builds the binary.
func buildWeir(t *testing.T) string {
	t.Helper()
	weir := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.Command("go", "build", "-o", weir, "../../cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return weir
}

// TestSiege is the siege in short: few restarts, each attack for a moment, against Weir alone.
func TestSiege(t *testing.T) {
	nstest.Root(t)
	var table strings.Builder
	c := config{weir: buildWeir(t), only: os.Getenv("WEIR_SIEGE"), calm: 500 * time.Millisecond, floodFor: 2 * time.Second,
		loadFor: 3 * time.Second, restarts: 3, pods: 12, short: true, out: &table}
	missed, err := c.run()
	t.Log("\n" + table.String())
	if err != nil {
		t.Fatal(err)
	}
	if missed > 0 {
		t.Errorf("%d bars missed", missed)
	}
}

// TestChaos is the chaos in short: each disturbance once.
func TestChaos(t *testing.T) {
	nstest.Root(t)
	violations, err := config{weir: buildWeir(t), out: io.Discard}.chaosFor(time.Duration(0), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

// TestOnly: a name that no scenario has is refused.
func TestOnly(t *testing.T) {
	if err := (config{only: "blind,no such scenario"}).checkOnly(); err == nil || !strings.Contains(err.Error(), `"no such scenario"`) {
		t.Errorf("error %v", err)
	}
	if err := (config{}).checkOnly(); err != nil {
		t.Error(err)
	}
}
