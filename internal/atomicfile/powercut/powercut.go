// Package powercut has file systems for tests that lose their power: of a file system on a loop
// device, a copy of the image at a moment has what was written to the device up to then, and
// nothing of what was still in memory.
package powercut

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Disk is a mounted file system of its own.
type Disk struct {
	Dir   string // where it is mounted
	image string
}

// size is enough for ext4 with a journal.
const size = 8 << 20

// New mounts a fresh file system. Nothing goes to its device unasked for ten minutes, and a rename
// waits for no data: what is not synced is lost at a cut.
func New(t testing.TB) *Disk {
	t.Helper()
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil || os.Geteuid() != 0 {
			if os.Getenv("WEIR_CI") == "1" {
				t.Fatalf("NOT TESTED: needs root and %s, and WEIR_CI=1 forbids to skip", tool)
			}
			t.Skipf("NOT TESTED: needs root and %s", tool)
		}
	}
	d := &Disk{image: filepath.Join(t.TempDir(), "image")}
	f, err := os.Create(d.image)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	run(t, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", d.image)
	d.Dir = mount(t, d.image, "loop,commit=600,noauto_da_alloc")
	return d
}

// Cut returns where the file system is mounted as it would be after a power cut at this moment,
// read only but for the journal's replay. The first one goes on.
func (d *Disk) Cut(t testing.TB) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	run(t, "cp", d.image, image)
	return mount(t, image, "loop,noatime")
}

func mount(t testing.TB, image, options string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "mount", "-t", "ext4", "-o", options, image, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
