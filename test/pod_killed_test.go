package test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// killedAddSettings leave space for five pods: addresses that were not given back would be missed.
const killedAddSettings = "[pods]\nranges = [\"10.88.0.0/29\", \"fd00:88::/125\"]\n"

// traces are all that pods have in their host: links, routes, neighbours, pinned links of programs
// and records.
func (h *podHost) traces() string {
	h.t.Helper()
	var all []string
	for _, args := range []string{"-br link", "-4 route show table all", "-6 route show table all",
		"neigh show nud permanent"} {
		out, err := h.host.Command("ip", strings.Fields(args)...).Output()
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, string(out))
	}
	for _, dir := range []string{h.bpffs, filepath.Join(h.root, "var/lib/weir/pods")} {
		err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			// a program is loaded when it is needed first, and stays
			if !strings.HasPrefix(filepath.Base(name), "prog-") {
				all = append(all, name+"\n")
			}
			return err
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return strings.Join(all, "")
}

// TestLongKilledAddsLeaveNothing: plugins that are killed at any moment of an ADD leave nothing
// behind once the runtime has called DEL, as it does after every failure. All that the host has is
// what it had before, and as many pods find an address. Other pods lose no packet meanwhile.
func TestLongKilledAddsLeaveNothing(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHostWith(t, killedAddSettings, "add allow ip from any to any\n")
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q}`, h.root)
	stays := h.lab.Node("stays")
	h.cni("ADD", "stays", stays.Path(), config)
	sends := h.lab.Node("sends")
	h.cni("ADD", "sends", sends.Path(), config)
	steady := newSteady(t, sends, stays, h.pod("stays").Addrs[0])
	before := h.traces()
	plugin := filepath.Join(h.root, "weir-cni")
	for i := range 40 {
		id := fmt.Sprint("k", i)
		node := h.lab.Node(id)
		cmd := h.host.Command(plugin)
		cmd.Env = append(cmd.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+id, "CNI_NETNS="+
			node.Path(), "CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni")
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
		if i%10 == 9 {
			eventually(t, "everything is gone but two pods", func() error {
				if pods := h.pods(); len(pods) != 2 {
					return fmt.Errorf("%d pods", len(pods))
				}
				if now := h.traces(); now != before {
					return fmt.Errorf("the host had\n%s\nand has\n%s", before, now)
				}
				return nil
			})
			if _, err := node.Netlink().LinkByName("eth0"); err == nil {
				t.Error("the namespace of the last one still has an interface")
			}
		}
	}
	for i := range 3 { // two have stayed
		id := fmt.Sprint("n", i)
		if out, _ := h.cni("ADD", id, h.lab.Node(id).Path(), config); out["ips"] == nil {
			t.Fatalf("an ADD that is not killed, with %d pods: %v", i+2, out)
		}
	}
	steady.end(t)
	if out, err := stays.Command("ping", "-c1", "-W300", "10.88.0.1").CombinedOutput(); err != nil {
		t.Errorf("the pod that stays: %v\n%s", err, out)
	}
}

// TestKilledAgentMidAttach: an agent that is killed while it attaches leaves nothing that the next
// one does not remove, and a repeated ADD works. Other pods lose no packet meanwhile.
func TestKilledAgentMidAttach(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q}`, h.root)
	plugin := filepath.Join(h.root, "weir-cni")
	h.cni("STATUS", "", "", config) // makes the link to the plugin
	stays, pod := h.attach("stays")
	sends, _ := h.attach("sends")
	steady := newSteady(t, sends, stays, pod.Addrs[0])
	for i := range 6 {
		id := fmt.Sprint("a", i)
		node := h.lab.Node(id)
		cmd := h.host.Command(plugin)
		cmd.Env = append(cmd.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+id, "CNI_NETNS="+
			node.Path(), "CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni")
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
		if out, err := node.Command("ping", "-c1", "-W300",
			"10.88.0.1").CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", id, err, out)
		}
	}
	steady.end(t)
	if pods := h.pods(); len(pods) != 8 {
		t.Errorf("%d pods, want 8", len(pods))
	}
}
