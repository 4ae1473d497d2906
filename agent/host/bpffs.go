package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountSource is the name under which our mounts stand in mountinfo, so that `weir down` knows
// them.
const mountSource = "weir"

// PreparePins makes the directory of the pins, on a bpf file system that is mounted if necessary.
// fleeting means that the mount ends with this process.
func PreparePins(pins, mountPoint string) (fleeting bool, err error) {
	on, err := onBpffs(pins)
	if err != nil {
		return false, err
	}
	if !on {
		if err := mountBpffs(mountPoint); err != nil {
			return false, err
		}
		fleeting = ownMounts()
	}
	return fleeting, os.MkdirAll(pins, 0o700)
}

func mountBpffs(at string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return mountPointError{err}
	}
	if err := unix.Mount(mountSource, at, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		"mode=0700"); err != nil {
		return fmt.Errorf("mount a bpf file system on %s: %w", at, err)
	}
	return nil
}

// mountPointError is why the directory for a bpf file system cannot be made.
type mountPointError struct{ error }

func (e mountPointError) Unwrap() error { return e.error }

// Hint returns what to do where no directory can be made, as below /sys/fs/bpf while nothing is
// mounted there.
func (e mountPointError) Hint() string {
	if errors.Is(e, os.ErrNotExist) {
		return "mount -t bpf bpf /sys/fs/bpf, or name another directory with --bpffs"
	}
	return ""
}

// onBpffs reports whether a directory, or the nearest above it that exists, is on a bpf file
// system.
func onBpffs(dir string) (bool, error) {
	for ; ; dir = filepath.Dir(dir) {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if err == nil {
			return s.Type == unix.BPF_FS_MAGIC, nil
		}
		if !errors.Is(err, os.ErrNotExist) || dir == "/" {
			return false, &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
}

// RemovePins takes the directory of the pins away, and the mount if it is ours and holds nothing
// else.
func RemovePins(pins, mountPoint string) (unmounted bool, err error) {
	if err := os.Remove(pins); err != nil && !errors.Is(err, os.ErrNotExist) &&
		!errors.Is(err, unix.EBUSY) {
		return false, err
	}
	ours, err := isOurMount(mountPoint)
	if err != nil || !ours {
		return false, err
	}
	if used, err := isUsed(mountPoint); err != nil || used {
		return false, err
	}
	if err := unix.Unmount(mountPoint, 0); err != nil {
		return false, fmt.Errorf("unmount %s: %w", mountPoint, err)
	}
	return true, nil
}

// isUsed reports whether a bpf file system holds anything besides the two files that kernels with
// CONFIG_BPF_PRELOAD put there.
func isUsed(at string) (bool, error) {
	entries, err := os.ReadDir(at)
	for _, e := range entries {
		if n := e.Name(); n != "progs.debug" && n != "maps.debug" {
			return true, nil
		}
	}
	return false, err
}

// isOurMount looks for a mount of ours in mountinfo (proc(5)): fields after " - " are type, source
// and options.
func isOurMount(at string) (bool, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) > 4 && unescapeMount(fields[4]) == at && len(kind) > 1 && kind[0] == "bpf" &&
			kind[1] == mountSource {
			return true, nil
		}
	}
	return false, nil
}

// unescapeMount undoes mountinfo's octal escapes.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// ownMounts reports whether this process has a mount namespace of its own, as under ip-netns(8)
// exec: what is mounted there is gone when its last process ends.
func ownMounts() bool {
	mine, err1 := os.Readlink("/proc/self/ns/mnt")
	first, err2 := os.Readlink("/proc/1/ns/mnt")
	return err1 == nil && err2 == nil && mine != first
}
