package test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// members returns the addresses in a table of a label.
func (h *podHost) members(table string) string {
	h.t.Helper()
	return h.weir("fw", "table", table, "list")
}

// TestPluginRuntimeOptions: addresses, MAC, bandwidth, published ports and labels are as a runtime
// asks for them. A label's table has the pod as soon as the plugin has answered, and no longer than
// that.
func TestPluginRuntimeOptions(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t,
		"add check-state\nadd allow tcp from any to table(app=web) 80 setup keep-state\n")
	config := func(ports string) string {
		return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","root":%q,
			"capabilities":{"portMappings":true,"ips":true,"mac":true,"bandwidth":true},
			"podLabels":["app"],"args":{"cni":{"labels":[{"key":"app","value":"web"}]}},
			"runtimeConfig":{"ips":["10.88.0.77","fd00:88::77/120"],"mac":"02:00:00:00:77:77",
				"bandwidth":{"ingressRate":8000000,"ingressBurst":800000,"egressRate":16000000,"egressBurst":800000},
				"portMappings":[%s]}}`, h.root, ports)
	}
	wish := config(`{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":8081,"containerPort":80,"protocol":"tcp","hostIP":"10.66.0.1"},
		{"hostPort":9899,"containerPort":9899,"protocol":"sctp"}`)
	node := h.lab.Node("web")
	for range 2 { // a pod that comes back is a pod
		out, _ := h.cni("ADD", "web", node.Path(), wish)
		if out["code"] != nil {
			t.Fatalf("ADD: %v", out)
		}
		if table := h.members("app=web"); !strings.Contains(table, "10.88.0.77/") ||
			!strings.Contains(table, "fd00:88::77/") {
			t.Errorf("table app=web after ADD:\n%s", table)
		}
		p := h.pods()[0]
		if want := []netip.Addr{netip.MustParseAddr("10.88.0.77"),
			netip.MustParseAddr("fd00:88::77")}; !slices.Equal(p.Addrs, want) {
			t.Errorf("addresses: %v", p.Addrs)
		}
		if p.MAC != "02:00:00:00:77:77" || p.Rates.In != 8000000 || p.Rates.Out != 16000000 ||
			p.Rates.InBurst != 100000 || len(p.Publish) != 3 {
			t.Errorf("pod: %+v", p)
		}
		if out, _ := h.cni("DEL", "web", node.Path(), wish); out != nil {
			t.Fatalf("DEL: %v", out)
		}
		eventually(t, "the addresses leave their table", func() error {
			if table := h.members("app=web"); strings.Contains(table, "77/") {
				return fmt.Errorf("table app=web after DEL:\n%s", table)
			}
			return nil
		})
	}
	for _, c := range []struct{ ports, want string }{
		{`{"hostPort":9900,"containerPort":9899,"protocol":"sctp"}`, "SCTP"},
		{`{"hostPort":80,"containerPort":80,"protocol":"dccp"}`, "dccp"},
		{`{"hostPort":70000,"containerPort":80,"protocol":"tcp"}`, "1 to 65535"},
		{`{"hostPort":80,"containerPort":80,"protocol":"tcp","hostIP":"here"}`, "hostIP"},
	} {
		out, _ := h.cni("ADD", "web", node.Path(), config(c.ports))
		if out["code"] == nil || !strings.Contains(fmt.Sprint(out["msg"]), c.want) ||
			out["cniVersion"] != "1.1.0" {
			t.Errorf("ADD with %s: %v", c.ports, out)
		}
		if left := h.pods(); len(left) != 0 {
			t.Errorf("ADD with %s left %+v", c.ports, left)
		}
	}
}

// TestIPv6Alone: a node whose pods have no IPv4 at all.
func TestIPv6Alone(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	h := newPodHostWith(t, "interfaces = [\"eth0\"]\n[pods]\nranges = [\"fd00:88::/120\"]\n",
		"add check-state\nadd allow tcp from any to any 80 setup keep-state\n")
	web, pod := h.attach("web", "--publish", "8080:80")
	nginx(t, web, 80, 81)
	nginx(t, h.outside, 80)
	if len(pod.Addrs) != 1 || !pod.Addrs[0].Is6() {
		t.Fatalf("addresses: %v", pod.Addrs)
	}
	own := "[" + pod.Addrs[0].String() + "]"
	client, _ := h.attach("client")
	for _, url := range []string{"http://" + own + "/", "http://[fd66::1]:8080/"} {
		for _, from := range []*nstest.Node{h.outside, client, h.host} {
			reach(t, from, url)
		}
	}
	reach(t, web, "http://[fd66::2]/")
	refuse(t, h.outside, "http://"+own+":81/")
	if out, err := web.Command("ip", "-4", "addr", "show", "dev",
		"eth0").CombinedOutput(); err != nil || len(out) != 0 {
		t.Errorf("IPv4 inside: %v\n%s", err, out)
	}
}

// TestRuntimesNameContainers: a runtime means a container by its id. What it asks about one that
// ended is not about another pod with that name.
func TestRuntimesNameContainers(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	node, pod := h.attach("web")
	if pod.Container == "web" {
		t.Fatalf("the pod's name is the id of its container: %+v", pod)
	}
	if out, _ := h.cni("DEL", "web", node.Path(), h.pluginConfig("1.0.0", "")); out != nil {
		t.Errorf("DEL of another container: %v", out)
	}
	if len(h.pods()) != 1 {
		t.Error("DEL of another container removed the pod")
	}
	check := h.pluginConfig("1.0.0", fmt.Sprintf(`,"prevResult":{"cniVersion":"1.0.0",
		"ips":[{"address":"%s/32"},{"address":"%s/128"}]}`, pod.Addrs[0], pod.Addrs[1]))
	if out, _ := h.cni("CHECK", "web", node.Path(), check); out["code"] == nil {
		t.Error("CHECK of another container found the pod")
	}
}
