package agent

import (
	"errors"
	"testing"

	"github.com/weirnet/weir/agent/dirlock"
)

// TestDownClaimsThePins: what an agent has pinned is not taken from under it by a down with another
// root.
func TestDownClaimsThePins(t *testing.T) {
	p := Paths{Root: t.TempDir(), Bpffs: t.TempDir()}
	l, err := dirlock.Acquire(p.Pins())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if err := Down(p, false); !errors.Is(err, dirlock.ErrLocked) {
		t.Errorf("got %v, want %v", err, dirlock.ErrLocked)
	}
}
