package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestForeignPodRange: pods get no range that is the network of an interface. The host keeps its
// neighbours, the status says why there are no pods, and they come when the range is free. One that
// becomes another's while there are pods is a problem; these pods keep working, and no other is
// added.
func TestForeignPodRange(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHostWith(t, "[pods]\nranges = [\"10.66.0.0/24\", \"fd66::/64\"]\n",
		"add allow ip from any to any\n")
	for _, neighbour := range []string{"10.66.0.2", "fd66::2"} {
		if err := ping(h.host, neighbour); err != nil {
			t.Error(err)
		}
	}
	if reported := problems(t, h.agentNode); !strings.Contains(reported,
		"pod range 10.66.0.0/24 overlaps 10.66.0.0/24, which is reached by interface eth0") ||
		!strings.Contains(reported, "choose a range") {
		t.Errorf("the problems are %s", reported)
	}
	if lo, err := h.host.Command("ip", "address", "show", "dev",
		"lo").CombinedOutput(); err != nil || strings.Contains(string(lo), "66") {
		t.Errorf("the loopback has %v\n%s", err, lo)
	}
	if out, _ := h.cni("STATUS", "", "", h.pluginConfig("1.1.0", "")); out["code"] != 50.0 ||
		!strings.Contains(fmt.Sprint(out["msg"]), "weir status shows") {
		t.Errorf("STATUS: %v", out)
	}
	late := h.lab.Node("late")
	if _, stderr, err := h.try("pod", "attach", late.Path()); err == nil {
		t.Errorf("a container gets an address of the neighbours': %s", stderr)
	}

	h.kill()
	h.file("etc/weir/weir.toml", podSettings)
	h.start()
	_, first := h.attach("first")
	gateway := func(args ...string) {
		t.Helper()
		if out, err := h.host.Command("ip",
			append([]string{"address"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	gateway("add", "10.88.0.200/25", "dev", "eth0")
	const what = "pod range 10.88.0.0/24 overlaps 10.88.0.128/25"
	eventually(t, "the range is reported as another's", func() error {
		if reported := problems(t, h.agentNode); !strings.Contains(reported, what) {
			return fmt.Errorf("the problems are %s", reported)
		}
		return nil
	})
	if _, stderr, err := h.try("pod", "attach", late.Path()); err == nil ||
		!strings.Contains(stderr, what) {
		t.Errorf("a container gets an address of another network: %v %s", err, stderr)
	}
	h.kill()
	h.start()
	if err := ping(h.host, first.Addrs[0].String()); err != nil {
		t.Errorf("the container that was there: %v", err)
	}
	gateway("del", "10.88.0.200/25", "dev", "eth0")
	eventually(t, "the range is free", func() error {
		if reported := problems(t, h.agentNode); reported != "[]" {
			return fmt.Errorf("the problems are %s", reported)
		}
		return nil
	})
	h.weir("pod", "attach", late.Path())
}

// TestPodsOutliveTheirRanges: the pods of a host whose ranges are taken from the settings keep
// their network and labels, go with their containers, and a runtime can detach them. What never was
// attached can be detached, too: a runtime calls DEL after an ADD that failed.
func TestPodsOutliveTheirRanges(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	config := h.pluginConfig("1.1.0", `,"labels":{"app":"web"}`)
	nodes := map[string]*nstest.Node{}
	for _, name := range []string{"one", "two", "late"} {
		nodes[name] = h.lab.Node(name)
	}
	for _, name := range []string{"one", "two"} {
		if out, _ := h.cni("ADD", name, nodes[name].Path(), config); out["code"] != nil {
			t.Fatalf("ADD: %v", out)
		}
	}
	first := h.pod("one").Addrs[0].String()
	h.kill()
	h.file("etc/weir/weir.toml", "interfaces = [\"eth0\"]\n")
	h.start()
	eventually(t, "the pods are taken over", func() error {
		if pods := h.pods(); len(pods) != 2 {
			return fmt.Errorf("pods: %+v", pods)
		}
		return nil
	})
	if err := ping(h.outside, first); err != nil || !strings.Contains(h.members("app=web"), first) {
		t.Errorf("%v, table app=web:\n%s", err, h.members("app=web"))
	}
	expectTranslated(t, h, first)
	if out, _ := h.cni("ADD", "late", nodes["late"].Path(), config); out["code"] != 100.0 ||
		!strings.Contains(fmt.Sprint(out["msg"]), "set [pods] ranges") {
		t.Errorf("ADD: %v", out)
	}
	for _, name := range []string{"late", "one", "one"} {
		if out, _ := h.cni("DEL", name, nodes[name].Path(), config); out != nil {
			t.Errorf("DEL of %s: %v", name, out)
		}
	}
	if err := h.host.Netlink().DeleteLink(int(h.pod("two").Index)); err != nil {
		t.Fatal(err)
	}
	gone := func() error {
		if links, pods := h.ownLinks(), h.pods(); len(links)+len(pods) != 0 {
			return fmt.Errorf("interfaces %v, pods %+v", links, pods)
		}
		return nil
	}
	eventually(t, "the pods are gone", gone)
	h.kill()
	h.start()
	for command, more := range map[string]string{"DEL": "",
		"GC": `,"cni.dev/valid-attachments":[]`} {
		if out, _ := h.cni(command, "one", nodes["one"].Path(),
			h.pluginConfig("1.1.0", more)); out != nil {
			t.Errorf("%s without pods: %v", command, out)
		}
	}
}

// expectTranslated has netfilter translate what a pod sends and drop what is forwarded, and waits
// until the agent warns of that.
func expectTranslated(t *testing.T, h *podHost, pod string) {
	t.Helper()
	need(t, "nft")
	h.host.Run("nft", "table ip t { chain p { type nat hook postrouting priority 100; ip saddr "+
		pod+" snat to 198.18.0.1; }; chain f { type filter hook forward priority 0; "+
		"policy drop; }; }")
	eventually(t, "the agent warns of netfilter", func() error {
		out, _, _ := h.try("status", "-j")
		if !strings.Contains(out, "may translate them") {
			return fmt.Errorf("the status is %s", out)
		}
		return nil
	})
	h.host.Run("nft", "delete table ip t")
}
