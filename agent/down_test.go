package agent

import (
	"errors"
	"testing"

	"github.com/weirnet/weir/agent/claim"
)

// TestDownClaimsThePins: what an agent has pinned is not taken from under it by a down with another
// root.
func TestDownClaimsThePins(t *testing.T) {
	p := Paths{Root: t.TempDir(), Bpffs: t.TempDir()}
	l, err := claim.Dir(p.Pins())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if err := Down(p, false); !errors.Is(err, claim.ErrTaken) {
		t.Errorf("got %v, want %v", err, claim.ErrTaken)
	}
}
