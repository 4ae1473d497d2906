// Package powercut simulates power cuts for tests. The file system is on a loop device. A copy of
// its image has everything that was written to the device until then, and nothing that was still
// in memory.
package powercut

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Disk is a file system that is mounted for one test.
type Disk struct {
	Dir   string // where it is mounted
	image string
}

// size is enough for ext4 with a journal, in bytes.
const size = 8 << 20

// Requests of linux/fs.h: _IOWR('X', 119, int) and _IOWR('X', 120, int).
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// New mounts a new file system. For ten minutes the kernel writes nothing to its device unless a
// program syncs, and a rename does not write the data first: a cut loses what is not synced.
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

// Cut mounts the file system as it would be after a power cut at this moment, and returns the
// directory. The test must only read there. The Disk itself stays usable.
func (d *Disk) Cut(t testing.TB) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	run(t, "cp", d.image, image)
	return mount(t, image, "loop,noatime")
}

// Hang has everything that changes the file system wait, as on a disk that does not answer, until
// the function that it returns is called.
func (d *Disk) Hang(t testing.TB) (end func()) {
	t.Helper()
	f, err := os.Open(d.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0); err != nil {
		t.Fatalf("freeze: %v", err)
	}
	end = sync.OnceFunc(func() {
		if err := unix.IoctlSetInt(int(f.Fd()), fiThaw, 0); err != nil {
			t.Errorf("thaw: %v", err)
		}
		f.Close()
	})
	t.Cleanup(end)
	return end
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
