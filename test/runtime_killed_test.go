package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestLongKilledRuntime kills a runtime at any moment of a container's start, every other time with
// the daemon behind it. Half of the times the container's pod is made by then. What the runtime
// began is gone when the daemon that comes after it has removed the container and collects its
// garbage, as CNI specifies. Other pods lose no packet meanwhile.
func TestLongKilledRuntime(t *testing.T) {
	t.Parallel()
	need(t, "containerd", "ctr", "runc", "busybox")
	h, _ := newContainerHost(t)
	h.weir("fw", "load", h.file("steady.rules", containerRules+
		"add allow udp from any to any 7 keep-state\n"))
	c := newContainerd(t, h)
	c.start()
	root := clientRoot(t)
	stays, pod := h.attach("stays")
	sends, _ := h.attach("sends")
	steady := newSteady(t, sends, stays, pod.Addrs[0])
	before := h.traces()
	collect := func(id string) { // what is left of a container
		t.Helper()
		eventually(t, "the container is gone", func() error {
			c.ctr("task", "rm", "-f", id).Run()
			c.ctr("container", "rm", id).Run()
			out, err := c.ctr("container", "ls", "-q").Output()
			if err == nil && len(out) > 0 {
				err = fmt.Errorf("there is %s", out)
			}
			return err
		})
		h.cni("GC", "", "", fmt.Sprintf(`{"cniVersion":"1.1.0","name":"weir","type":"weir-cni","root":%q}`, h.root))
		eventually(t, "everything is gone but two pods", func() error {
			if now := h.traces(); now != before {
				return errors.New("the host had\n" + before + "\nand has\n" + now)
			}
			return nil
		})
	}
	start := time.Now()
	mustRun(t, c.ctr("run", "-d", "--cni", "--rootfs", root, "whole", "/bin/sleep", "600"))
	whole := time.Since(start) // how long it takes without a kill
	collect("whole")
	for i := range 12 {
		id := fmt.Sprint("k", i)
		run := c.ctr("run", "-d", "--cni", "--rootfs", root, id, "/bin/sleep", "600")
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		began := i >= 6 // its pod is made before the kill
		if began {
			eventually(t, "the pod is made", func() error {
				if len(h.pods()) == 2 {
					return errors.New("there is none")
				}
				return nil
			})
		}
		time.Sleep(whole * time.Duration(i%6) / 9)
		run.Process.Signal(syscall.SIGKILL)
		if i%2 == 1 {
			c.program.Process.Signal(syscall.SIGKILL)
		}
		run.Wait() // killed, or done just before
		t.Cleanup(func() { removeFromRunc(t, id) })
		if i%2 == 1 {
			c.start()
		}
		if began && len(h.pods()) == 2 {
			t.Errorf("the pod of %s ended with its runtime: nothing is left to collect", id)
		}
		collect(id)
	}
	steady.end(t)
}

// removeFromRunc removes what runc has begun for a container before the daemon was killed. The next
// daemon does not know it, and its process would stay on this machine.
func removeFromRunc(t *testing.T, id string) {
	t.Helper()
	const containers = "/run/containerd/runc/default"
	out, err := exec.Command("runc", "--root", containers, "delete", "-f", id).CombinedOutput()
	if _, there := os.Stat(filepath.Join(containers, id)); there == nil {
		t.Errorf("runc still has %s: %v: %s", id, err, out)
	}
}
