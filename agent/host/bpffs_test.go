package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/nstest"
)

// TestMountPointCannotBeMade: on a file system where no directory can be made, as at
// /sys/fs/bpf while nothing is mounted there, the error says what to mount.
func TestMountPointCannotBeMade(t *testing.T) {
	_, err := PreparePins("/proc/weir", "/proc/weir")
	if hint := problem.Hint(err, ""); err == nil || !strings.Contains(hint, "mount -t bpf") {
		t.Errorf("%v, hint %q", err, hint)
	}
}

func TestPinsAreMountedAndRemoved(t *testing.T) {
	nstest.RequireRoot(t)
	at := filepath.Join(t.TempDir(), "bpf")
	pins := filepath.Join(at, "weir")
	t.Cleanup(func() { unix.Unmount(at, 0) })
	if _, err := PreparePins(pins, at); err != nil {
		t.Fatal(err)
	}
	if on, err := onBpffs(pins); err != nil || !on {
		t.Fatalf("on a bpf file system: %v, %v", on, err)
	}
	if _, err := PreparePins(pins, at); err != nil {
		t.Errorf("a second time: %v", err)
	}
	guest := filepath.Join(at, "guest")
	if err := os.Mkdir(guest, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := RemovePins(pins, at); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(guest); err != nil {
		t.Fatalf("the mount was removed although another program used it: %v", err)
	}
	if err := os.Remove(guest); err != nil {
		t.Fatal(err)
	}
	if _, err := RemovePins(pins, at); err != nil {
		t.Fatal(err)
	}
	if ours, err := isOurMount(at); err != nil || ours {
		t.Errorf("the mount stays: %v, %v", ours, err)
	}
}

func TestPinsOnAForeignMountLeaveIt(t *testing.T) {
	dir := nstest.Bpffs(t)
	pins := filepath.Join(dir, "weir")
	if _, err := PreparePins(pins, pins); err != nil {
		t.Fatal(err)
	}
	if _, err := RemovePins(pins, pins); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pins); !os.IsNotExist(err) {
		t.Errorf("the directory stays: %v", err)
	}
	if on, err := onBpffs(dir); err != nil || !on {
		t.Errorf("the mount of another program was removed: %v, %v", on, err)
	}
}
