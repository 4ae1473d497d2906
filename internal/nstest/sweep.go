package nstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// sweep removes what dead processes left behind: their namespaces, with whatever still runs
// inside, and their bpf file systems.
func sweep() error {
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep: %w", err)
	}
	for _, e := range entries {
		if orphaned(e.Name()) {
			if err := removeNS(filepath.Join(netnsDir, e.Name())); err != nil {
				return fmt.Errorf("sweep: %w", err)
			}
		}
	}
	// The directories say what is left, not the table of mounts. Another process that sweeps at the
	// same time may have unmounted one and not removed it yet, or died in between.
	if entries, err = os.ReadDir(os.TempDir()); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && orphaned(e.Name()) {
			if err := removeBpffs(filepath.Join(os.TempDir(), e.Name())); err != nil {
				return fmt.Errorf("sweep: %w", err)
			}
		}
	}
	return nil
}

// removeNS ends the processes inside the namespace that path stands for and removes path. Another
// process may do the same at once: what is already gone is not an error.
func removeNS(path string) error {
	if err := killInside(path); err != nil {
		return err
	}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL &&
		err != unix.ENOENT {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// killTimeout is how long killed processes get to disappear. One that is stuck in the kernel for
// longer is reported.
const killTimeout = time.Minute

// killInside kills all processes in the namespace that path stands for, and waits until they are
// gone.
func killInside(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if err == unix.ENOENT {
			return nil
		}
		return fmt.Errorf("stat %s: %w", path, err)
	}
	var fsType unix.Statfs_t
	if unix.Statfs(path, &fsType) != nil || fsType.Type != unix.NSFS_MAGIC {
		return nil // never mounted: its process died half-way
	}
	for deadline := time.Now().Add(killTimeout); ; time.Sleep(5 * time.Millisecond) {
		inside, err := processesIn(st.Ino)
		if err != nil || len(inside) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v in %s did not end", inside, path)
		}
		for _, pid := range inside {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// processesIn lists the processes, other than this one, whose main thread is in the network
// namespace with that inode. Zombies have left theirs already.
func processesIn(inode uint64) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	want := fmt.Sprintf("net:[%d]", inode)
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if ns, _ := os.Readlink(filepath.Join("/proc", e.Name(), "ns/net")); ns == want {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
