package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// newPodman returns what runs a command of podman on the host, with networks by CNI.
func newPodman(t *testing.T, h *podHost, plugins string) (podman func(args ...string) *nstest.Cmd) {
	t.Helper()
	runtime := h.file("runtime", withoutLimits)
	if err := os.Chmod(runtime, 0o755); err != nil {
		t.Fatal(err)
	}
	conf := h.file("containers.conf",
		fmt.Sprintf("[network]\nnetwork_backend=\"cni\"\ncni_plugin_dirs=[%q]\n"+
			"network_config_dir=%q\n[engine]\ncgroup_manager=\"cgroupfs\"\n"+
			"events_logger=\"none\"\n",
			plugins, h.conflist("pods", "0.4.0")))
	podman = func(args ...string) *nstest.Cmd {
		cmd := h.host.Command("podman",
			append([]string{"--root", filepath.Join(h.root, "store"), "--runroot",
				filepath.Join(h.root, "run/podman"), "--runtime", runtime}, args...)...)
		cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+conf)
		return cmd
	}
	t.Cleanup(func() {
		podman("rm", "-af", "-t0").Run()
		h.endStore(t)
	})
	return podman
}

// endStore unmounts podman's store once no podman uses it: behind each container that ends, conmon
// starts one in the background, which mounts the store again.
func (h *podHost) endStore(t *testing.T) {
	t.Helper()
	store := filepath.Join(h.root, "store")
	eventually(t, "no podman uses its store", func() error {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, l := range lines {
			if text, err := os.ReadFile(l); err == nil && strings.Contains(string(text), store) {
				return fmt.Errorf("%s does: %q", l, text)
			}
		}
		return err
	})
	for {
		if err := unix.Unmount(filepath.Join(store, "overlay"), unix.MNT_DETACH); err != nil {
			return // it is mounted no more
		}
	}
}
