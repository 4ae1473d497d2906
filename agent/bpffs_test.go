package agent

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

func TestPinsAreMountedAndRemoved(t *testing.T) {
	nstest.Root(t)
	root := t.TempDir()
	p := Paths{Root: root}
	t.Cleanup(func() { unix.Unmount(p.mountPoint(), 0) })
	if _, err := preparePins(p); err != nil {
		t.Fatal(err)
	}
	if on, err := onBpffs(p.Pins()); err != nil || !on {
		t.Fatalf("on a bpf file system: %v, %v", on, err)
	}
	if _, err := preparePins(p); err != nil {
		t.Errorf("a second time: %v", err)
	}
	guest := filepath.Join(p.mountPoint(), "guest")
	if err := os.Mkdir(guest, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := removePins(p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(guest); err != nil {
		t.Fatalf("the mount was removed although another program used it: %v", err)
	}
	if err := os.Remove(guest); err != nil {
		t.Fatal(err)
	}
	if err := removePins(p); err != nil {
		t.Fatal(err)
	}
	if ours, err := isOurMount(p.mountPoint()); err != nil || ours {
		t.Errorf("the mount stays: %v, %v", ours, err)
	}
}

func TestPinsOnAForeignMountLeaveIt(t *testing.T) {
	dir := nstest.Bpffs(t)
	p := Paths{Root: t.TempDir(), Bpffs: filepath.Join(dir, "weir")}
	if _, err := preparePins(p); err != nil {
		t.Fatal(err)
	}
	if err := removePins(p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Pins()); !os.IsNotExist(err) {
		t.Errorf("the directory stays: %v", err)
	}
	if on, err := onBpffs(dir); err != nil || !on {
		t.Errorf("the mount of another program was removed: %v, %v", on, err)
	}
}
