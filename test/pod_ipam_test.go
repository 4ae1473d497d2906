package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGatewayOfIPAM: the gateway that a delegated IPAM plugin names is the container's next hop, of
// its default route and of others. CHECK of the plugin static accepts the result, and packets get
// through although the host does not have that address.
func TestGatewayOfIPAM(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl", "/usr/lib/cni/static")
	h := newPodHost(t, "add check-state\nadd allow ip from any to any keep-state\n")
	nginx(t, h.outside, 80)
	h.outside.Route("10.78.0.0/24", "10.66.0.1")
	h.outside.Route("fd78::/64", "fd66::1")
	static := func(ipam string) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q,`+
			`"ipam":{"type":"static",%s}}`, h.root, ipam)
	}
	config := static(`"addresses":[{"address":"10.78.0.5/24","gateway":"10.78.0.1"},` +
		`{"address":"fd78::5/64","gateway":"fd78::1"}],"routes":[{"dst":"0.0.0.0/0"},` +
		`{"dst":"10.66.0.0/24","gw":"10.78.0.1"},{"dst":"::/0"}],` +
		`"dns":{"nameservers":["10.78.0.53"],"search":["example"]}`)
	node := h.lab.Node("pod")
	result, _ := h.cni("ADD", "pod", node.Path(), config)
	if fmt.Sprint(result["ips"]) != "[map[address:10.78.0.5/32 gateway:10.78.0.1 interface:1] "+
		"map[address:fd78::5/128 gateway:fd78::1 interface:1]]" ||
		fmt.Sprint(result["dns"]) != "map[nameservers:[10.78.0.53] search:[example]]" {
		t.Errorf("ADD: %v", result)
	}
	for family, want := range map[string][]string{
		"-4": {"default via 10.78.0.1 dev eth0", "10.66.0.0/24 via 10.78.0.1 dev eth0"},
		"-6": {"default via fd78::1 dev eth0"},
	} {
		routes, err := node.Command("ip", family, "route").Output()
		for _, one := range want {
			if err != nil || !strings.Contains(string(routes), one) {
				t.Errorf("%s is missing: %v\n%s", one, err, routes)
			}
		}
	}
	if out, err := node.Command("ip", "neigh").Output(); err != nil ||
		!strings.Contains(string(out), "10.78.0.1 dev eth0") ||
		strings.Contains(string(out), "FAILED") {
		t.Errorf("neighbours: %v\n%s", err, out)
	}
	nginx(t, node, 80)
	for _, host := range []string{"10.66.0.2", "[fd66::2]"} {
		reach(t, node, "http://"+host+"/")
	}
	for _, from := range []string{"10.78.0.5", "[fd78::5]"} {
		reach(t, h.outside, "http://"+from+"/")
		reach(t, h.host, "http://"+from+"/")
	}
	previous, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	check := strings.Replace(config, `"root"`, `"prevResult":`+string(previous)+`,"root"`, 1)
	if out, _ := h.cni("CHECK", "pod", node.Path(), check); out != nil {
		t.Errorf("CHECK: %v", out)
	}
	h.stop()
	h.start("--rules", h.root+"/etc/weir/rules")
	if out, _ := h.cni("CHECK", "pod", node.Path(), check); out != nil {
		t.Errorf("CHECK after a restart: %v", out)
	}
	mustRun(t, node.Command("ip", "route", "del", "default"))
	if out, _ := h.cni("CHECK", "pod", node.Path(), check); out["code"] != 101.0 {
		t.Errorf("CHECK without the default route: %v", out)
	}
	if out, _ := h.cni("DEL", "pod", node.Path(), check); out != nil {
		t.Errorf("DEL: %v", out)
	}
	other := h.lab.Node("other")
	for ipam, want := range map[string]string{
		`"addresses":[{"address":"10.78.0.6/24","gateway":"10.78.0.1"}],` +
			`"routes":[{"dst":"10.0.0.0/8","gw":"10.78.0.254"}]`: "one gateway of a family",
		`"addresses":[{"address":"10.78.0.6/24","gateway":"10.78.0.6"}]`: "its own address",
	} {
		out, _ := h.cni("ADD", "other", other.Path(), static(ipam))
		if out["code"] == nil || !strings.Contains(fmt.Sprint(out["msg"]), want) ||
			len(h.pods()) != 0 {
			t.Errorf("ADD with %s: %v", ipam, out)
		}
	}
}

// TestRepeatedADDKeepsAddresses: an ADD that is repeated with another namespace, without a DEL,
// fails, and what the delegated plugin has assigned to the pod that runs is not released.
func TestRepeatedADDKeepsAddresses(t *testing.T) {
	t.Parallel()
	h := newPodHost(t, "add allow ip from any to any\n")
	h.plugins = t.TempDir()
	noted := filepath.Join(h.plugins, "commands")
	script := "#!/bin/sh\necho $CNI_COMMAND >>" + noted + "\n[ $CNI_COMMAND != ADD ] || echo '" +
		`{"cniVersion":"1.0.0","ips":[{"address":"10.78.0.5/24","gateway":"10.78.0.1"}]}'` + "\n"
	if err := os.WriteFile(filepath.Join(h.plugins, "fake"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	config := h.pluginConfig("1.0.0", `,"ipam":{"type":"fake"}`)
	for i, c := range []struct{ command, node, want string }{
		{"ADD", "one", ""}, {"ADD", "two", "attached already"}, {"DEL", "one", ""},
	} {
		out, _ := h.cni(c.command, "pod", h.lab.Node(fmt.Sprint(c.node, i)).Path(), config)
		if msg, _ := out["msg"].(string); !strings.Contains(msg, c.want) || c.want == "" &&
			msg != "" {
			t.Errorf("%+v: %v", c, out)
		}
	}
	if got, err := os.ReadFile(noted); err != nil || string(got) != "ADD\nADD\nDEL\n" {
		t.Errorf("the plugin was called with %q, %v", got, err)
	}
}
