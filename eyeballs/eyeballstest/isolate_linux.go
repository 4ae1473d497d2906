package eyeballstest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Inside runs this program again with the arguments, in a new network namespace and a new mount
// namespace, which end with it. It adds setting, NAME=value, to the environment.
func Inside(setting string, out io.Writer, args ...string) error {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), setting)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	return cmd.Run()
}

// Etc mounts files with these texts over those of the same name in /etc, in this mount namespace
// only. Call it in a namespace of Inside, once for each file.
func Etc(files map[string]string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("simulated network: private mounts: %w", err)
	}
	dir, err := os.MkdirTemp("", "simnet")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // the mounts keep the files
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(path, filepath.Join("/etc", name), "", syscall.MS_BIND,
			""); err != nil {
			return fmt.Errorf("simulated network: cannot mount over /etc/%s: %w", name, err)
		}
	}
	return nil
}

// ip runs an ip command.
func ip(line string) error {
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("simulated network: ip %s: %w: %s", line, err,
			strings.TrimSpace(string(out)))
	}
	return nil
}
