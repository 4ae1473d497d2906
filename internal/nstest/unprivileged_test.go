package nstest

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// runUnprivileged runs checkSkips in a process without rights and returns its complaints.
func runUnprivileged(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "NSTEST_CHECK_SKIPS=1")
	if lacking() == "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534,
			Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return err.Error() + "\n" + string(out)
	}
	return string(out)
}

func checkSkipsAndExit() {
	checkSkips(func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) })
	os.Exit(0)
}
