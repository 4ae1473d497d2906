package nstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MountBpffs mounts an empty bpf file system of its own on a new directory. unmount removes both,
// and with them every object that only a pin kept alive.
func MountBpffs() (dir string, unmount func() error, err error) {
	if err := sweep(); err != nil {
		return "", nil, err
	}
	name, err := ownName("bpffs")
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(os.TempDir(), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", nil, err
	}
	if err := unix.Mount("weir", dir, "bpf", 0, "mode=0700"); err != nil {
		return "", nil, errors.Join(fmt.Errorf("mount a bpf file system on %s: %w", dir, err),
			os.Remove(dir))
	}
	return dir, func() error { return removeBpffs(dir) }, nil
}

func removeBpffs(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
