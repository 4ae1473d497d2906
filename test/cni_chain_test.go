package test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// chained calls a plugin that follows weir-cni in a chain, with what that returned.
func (h *podHost) chained(command, plugin, container string, node *nstest.Node, more string,
	previous map[string]any) {
	h.t.Helper()
	result, err := json.Marshal(previous)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := h.host.Command("/usr/lib/cni/" + plugin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+container,
		"CNI_NETNS="+
			node.Path(), "CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion":"1.0.0","name":"net","type":%q,%s,"prevResult":%s}`, plugin, more, result))
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("%s of %s: %v\n%s", command, plugin, err, out)
	}
}

// TestLongChainedPortmap: the plugin portmap behind weir-cni forwards a port of the host by
// netfilter.
func TestLongChainedPortmap(t *testing.T) {
	t.Parallel()
	need(t, "iptables", "nginx", "curl", "/usr/lib/cni/portmap")
	h := newPodHost(t, "add check-state\nadd allow ip from any to any keep-state\n")
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q}`, h.root)
	web := h.lab.Node("web")
	result, _ := h.cni("ADD", "web", web.Path(), config)
	ports := `"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,
		"protocol":"tcp"}]}`
	h.chained("ADD", "portmap", "web", web, ports, result)
	nginx(t, web, 80)
	client, _ := h.attach("client")
	for _, from := range []*nstest.Node{h.outside, h.host, client, web} {
		for _, to := range []string{"10.66.0.1", "[fd66::1]"} {
			if from == web && to != "10.66.0.1" {
				continue // portmap masquerades what a container sends to itself for IPv4 only
			}
			if out, err := get(from, "http://"+to+":8080/"); err != nil ||
				out != "hello from nginx\n" {
				t.Errorf("from %s to %s: %q, %v", from, to, out, err)
			}
		}
	}
	h.chained("DEL", "portmap", "web", web, ports, result)
	if out, _ := h.cni("DEL", "web", web.Path(), config); out != nil {
		t.Error(out)
	}
	refuse(t, h.outside, "http://10.66.0.1:8080/")
}

// TestLongChainedBandwidth: the plugin bandwidth behind weir-cni limits both directions of a pod,
// by queueing disciplines on its host end. What the pod's published port translates still passes.
func TestLongChainedBandwidth(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl", "/usr/lib/cni/bandwidth")
	h := newPodHost(t, "add check-state\nadd allow ip from any to any keep-state\n")
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q,
		"capabilities":{"portMappings":true},"runtimeConfig":{"portMappings":[{"hostPort":8080,
		"containerPort":80,"protocol":"tcp"}]}}`, h.root)
	web := h.lab.Node("web")
	result, _ := h.cni("ADD", "web", web.Path(), config)
	// 8 Mbit/s and 100 kB at once
	rates := `"ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,"egressBurst":800000`
	h.chained("ADD", "bandwidth", "web", web, rates, result)
	nginx(t, web, 80)
	nginx(t, h.outside, 81)
	client, _ := h.attach("client")
	address := h.pod("web").Addrs[0].String()
	for _, c := range []struct {
		name string
		from *nstest.Node
		url  string
	}{
		{"from the pod to outside", h.outside, "http://" + address},
		{"from the pod to outside, published", h.outside, "http://10.66.0.1:8080"},
		{"from the pod to a pod", client, "http://" + address},
		{"from the pod to a pod, published", client, "http://10.66.0.1:8080"},
		{"from outside to the pod", web, "http://10.66.0.2:81"},
	} {
		began := time.Now()
		out, err := get(c.from, "-r", "0-1999999", c.url+"/big")
		took := time.Since(began)
		if err != nil || len(out) != 2000000 {
			t.Errorf("%s: %d bytes, %v", c.name, len(out), err)
		} else if took < 1500*time.Millisecond {
			t.Errorf("%s: 2 MB in %v", c.name, took)
		}
	}
}
