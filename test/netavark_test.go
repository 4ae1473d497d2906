package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// netavark calls the plugin as podman and netavark do, and returns what it prints.
func (h *podHost) netavark(stdin any, args ...string) (out map[string]any, failed bool) {
	h.t.Helper()
	text, err := json.Marshal(stdin)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := h.host.Command(weir, append([]string{"netavark"}, args...)...)
	cmd.Stdin = strings.NewReader(string(text))
	answer, err := cmd.Output()
	if len(answer) > 0 {
		if bad := json.Unmarshal(answer, &out); bad != nil {
			h.t.Fatalf("%v prints %s: %v", args, answer, bad)
		}
	}
	if err != nil && out["error"] == nil {
		h.t.Fatalf("%v: %v without an error object: %s", args, err, answer)
	}
	return out, err != nil
}

// TestNetavark: a network is created and containers are set up and torn down by the protocol of
// netavark's plugins, and meet the rules. So do those of netavark itself, where there is one that
// calls plugins; that of Debian 12, 1.4, does not.
func TestNetavark(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	if program := netavarkProgram(); program != "" {
		t.Run("itself", func(t *testing.T) { byNetavark(t, program) })
	}
	h := newPodHost(t, containerRules)
	network, failed := h.netavark(map[string]any{"name": "pods", "id": "1", "driver": "weir",
		"dns_enabled": true, "internal": false, "ipv6_enabled": false,
		"options": map[string]string{"label.app": "web", "root": h.root}}, "create")
	if failed || network["dns_enabled"] != false ||
		fmt.Sprint(network["ipam_options"]) != "map[driver:none]" {
		t.Fatalf("create: %v", network)
	}
	request := func(id, name string, more map[string]any) map[string]any {
		all := map[string]any{"container_id": id, "container_name": name, "network": network,
			"network_options": map[string]any{"interface_name": "eth0"}}
		maps.Copy(all, more)
		return all
	}
	web := h.lab.Node("web")
	first := request("abc", "web", map[string]any{"port_mappings": []map[string]any{
		{"container_port": 80, "host_ip": "", "host_port": 8080, "protocol": "tcp", "range": 2}}})
	status, failed := h.netavark(first, "setup", web.Path())
	if failed {
		t.Fatalf("setup: %v", status)
	}
	own := h.pod("web")
	var said []string
	eth0 := status["interfaces"].(map[string]any)["eth0"].(map[string]any)
	for _, s := range eth0["subnets"].([]any) {
		said = append(said, s.(map[string]any)["ipnet"].(string))
	}
	for i, a := range own.Addrs {
		if want := netip.PrefixFrom(a, a.BitLen()).String(); said[i] != want {
			t.Errorf("the status has %v, the pod %v", said, own.Addrs)
		}
	}
	if own.Container != "abc" || own.Labels["app"] != "web" || eth0["mac_address"] != own.MAC ||
		fmt.Sprint(status["dns_search_domains"]) != "[weir]" {
		t.Errorf("the pod is %+v, the status %v", own, status)
	}
	nginx(t, web, 80, 81)
	for _, host := range []string{"10.66.0.1:8080", own.Addrs[0].String()} {
		reach(t, h.outside, "http://"+host+"/")
	}
	refuse(t, h.outside, "http://10.66.0.1:8081/")
	// again, as after a failure of another network of the container
	if again, failed := h.netavark(first, "setup", web.Path()); failed ||
		fmt.Sprint(again) != fmt.Sprint(status) {
		t.Errorf("setup again: %v", again)
	}
	if out, failed := h.netavark(request("def", "web", nil), "setup",
		h.lab.Node("other").Path()); !failed ||
		!strings.Contains(fmt.Sprint(out["error"]), "pod name web is taken") {
		t.Errorf("the same name: %v", out)
	}
	if _, refused, err := h.try("pod", "label", "web", "app=db"); err == nil ||
		!strings.Contains(refused, "is of the configuration of pods") {
		t.Errorf("a label of the network: %v, %s", err, refused)
	}
	for range 2 { // again, as after a failure
		if out, failed := h.netavark(first, "teardown", web.Path()); failed || out != nil {
			t.Errorf("teardown: %v", out)
		}
	}
	h.isEmpty(t)
	h.kill()
	if out, failed := h.netavark(first, "setup", web.Path()); !failed ||
		!strings.Contains(fmt.Sprint(out["error"]), "no node is running") {
		t.Errorf("setup without a node: %v", out)
	}
}

// byNetavark has netavark itself set a container up and tear it down by the plugin.
func byNetavark(t *testing.T, program string) {
	h := newPodHost(t, containerRules)
	plugins := filepath.Join(h.root, "plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s netavark \"$@\"\n", weir)
	if err := os.WriteFile(filepath.Join(plugins, "weir"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	web := h.lab.Node("web")
	options := h.file("options.json", fmt.Sprintf(`{"container_id":"abc","container_name":"web",
		"port_mappings":[{"container_port":80,"host_ip":"","host_port":8080,"protocol":"tcp",
			"range":1}],
		"networks":{"pods":{"interface_name":"eth0"}},
		"network_info":{"pods":{"name":"pods","id":"1","driver":"weir","dns_enabled":false,
			"internal":false,"ipv6_enabled":false,"ipam_options":{"driver":"none"},
			"options":{"label.app":"web","root":%q}}}}`, h.root))
	call := func(command string) string {
		t.Helper()
		return mustRun(t, h.host.Command(program, "--plugin-directory", plugins, "--config",
			t.TempDir(), "-f", options, command, web.Path()))
	}
	out := call("setup")
	own := h.pod("web")
	if !strings.Contains(out, own.Addrs[0].String()+"/32") || own.Labels["app"] != "web" {
		t.Errorf("netavark says %s, the pod is %+v", out, own)
	}
	nginx(t, web, 80)
	reach(t, h.outside, "http://10.66.0.1:8080/")
	call("teardown")
	h.isEmpty(t)
}

// netavarkProgram is a netavark that calls plugins, in the path or where podman looks for it; empty
// if there is none.
func netavarkProgram() string {
	for _, name := range []string{"netavark", "/usr/libexec/podman/netavark",
		"/usr/lib/podman/netavark"} {
		out, err := exec.Command(name, "--help").Output()
		if err == nil && strings.Contains(string(out), "--plugin-directory") {
			return name
		}
	}
	return ""
}
