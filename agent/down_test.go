package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/agent/dirlock"
	"github.com/weirnet/weir/internal/nstest"
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

// TestDownAfterACrash: the socket for dockerd goes, too. While it is there without an agent,
// dockerd asks again and again.
func TestDownAfterACrash(t *testing.T) {
	host := nstest.New(t).Node("host")
	p := Paths{Root: t.TempDir(), Bpffs: nstest.Bpffs(t)}
	if err := errors.Join(os.MkdirAll(filepath.Dir(p.Docker()), 0o755),
		os.WriteFile(p.Docker(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := host.Do(func() error { return Down(p, true) }); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(p.Docker()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
