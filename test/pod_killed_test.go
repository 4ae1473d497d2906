package test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestKilledAddsLeaveNothing: plugins that are killed at any moment of an ADD leave neither links nor records nor addresses
// behind once the runtime has called DEL, as it does after every failure.
func TestKilledAddsLeaveNothing(t *testing.T) {
	nstest.Root(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q}`, h.root)
	stays := h.lab.Node("stays")
	h.cni("ADD", "stays", stays.Path(), config)
	plugin := filepath.Join(h.root, "weir-cni")
	for i := range 40 {
		id := fmt.Sprint("k", i)
		node := h.lab.Node(id)
		cmd := h.host.Command(plugin)
		cmd.Env = append(cmd.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+id, "CNI_NETNS="+node.Path(), "CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni")
		cmd.Stdin = strings.NewReader(config)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait() // killed, or done just before
		if out, _ := h.cni("DEL", id, "", config); out != nil {
			t.Errorf("DEL after a killed ADD: %v", out)
		}
	}
	within(t, 10*time.Second, "everything is gone but one pod", func() error {
		if pods := h.pods(); len(pods) != 1 {
			return fmt.Errorf("%d pods", len(pods))
		}
		links, err := h.host.Netlink().Links()
		if err != nil {
			return err
		}
		ours := 0
		for _, l := range links {
			if strings.HasPrefix(l.Alias, "weir:") {
				ours++
			}
		}
		files, err := filepath.Glob(filepath.Join(h.root, "var/lib/weir/pods/*.json"))
		if err != nil {
			return err
		}
		if ours != 1 || len(files) != 1 {
			return fmt.Errorf("%d links, %d records", ours, len(files))
		}
		return nil
	})
	if out, err := stays.Command("ping", "-c1", "-W2", "10.88.0.1").CombinedOutput(); err != nil {
		t.Errorf("the pod that stays: %v\n%s", err, out)
	}
}

// TestKilledAgentMidAttach: an agent that is killed while it attaches leaves nothing that the next one does not remove, and a
// repeated ADD works.
func TestKilledAgentMidAttach(t *testing.T) {
	nstest.Root(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q}`, h.root)
	plugin := filepath.Join(h.root, "weir-cni")
	h.cni("STATUS", "", "", config) // makes the link to the plugin
	for i := range 6 {
		id := fmt.Sprint("a", i)
		node := h.lab.Node(id)
		cmd := h.host.Command(plugin)
		cmd.Env = append(cmd.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+id, "CNI_NETNS="+node.Path(), "CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni")
		cmd.Stdin = strings.NewReader(config)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(4*i) * time.Millisecond)
		h.kill()
		cmd.Wait()
		h.start()
		if out, _ := h.cni("ADD", id, node.Path(), config); out["ips"] == nil {
			t.Fatalf("ADD after the agent was killed: %v", out)
		}
		if out, err := node.Command("ping", "-c1", "-W2", "10.88.0.1").CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", id, err, out)
		}
	}
	if pods := h.pods(); len(pods) != 6 {
		t.Errorf("%d pods, want 6", len(pods))
	}
}
