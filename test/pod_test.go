package test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// podSettings give a node pod ranges.
const podSettings = `
interfaces = ["eth0"]
[pods]
ranges = ["10.88.0.0/24", "fd00:88::/120"]
`

// podHost is a guarded host with a neighbour on its network:
//
//	outside  eth0 ------ eth0  host  === pods 10.88.0.0/24, fd00:88::/120
//	10.66.0.2            10.66.0.1
//	fd66::2              fd66::1
type podHost struct {
	outside, host *nstest.Node
	lab           *nstest.Lab
	*agentNode
	plugins string // CNI_PATH, /usr/lib/cni if it is empty
}

func newPodHost(t *testing.T, rules string) *podHost {
	t.Helper()
	return newPodHostWith(t, podSettings, rules)
}

func newPodHostWith(t *testing.T, settings, rules string) *podHost {
	t.Helper()
	lab := nstest.New(t)
	h := &podHost{lab: lab, outside: lab.Node("outside"), host: lab.Node("host")}
	lab.Join(h.outside, "eth0", "10.66.0.2/24 fd66::2/64", h.host, "eth0",
		"10.66.0.1/24 fd66::1/64")
	h.outside.Route("10.88.0.0/24", "10.66.0.1")
	h.outside.Route("fd00:88::/120", "fd66::1")
	h.agentNode = newAgentNode(t, h.host)
	h.file("etc/weir/weir.toml", settings)
	h.start("--rules", h.file("etc/weir/rules", rules))
	return h
}

// attach gives a new namespace a network by `weir pod attach`.
func (h *podHost) attach(name string, args ...string) (*nstest.Node, api.Pod) {
	h.t.Helper()
	node := h.lab.Node(name)
	h.weir(append(append([]string{"pod", "attach", "--name", name}, args...), node.Path())...)
	return node, h.pod(name)
}

func (h *podHost) pods() []api.Pod {
	h.t.Helper()
	var list api.Pods
	if err := json.Unmarshal([]byte(h.weir("pod", "list", "-j")), &list); err != nil {
		h.t.Fatal(err)
	}
	return list.Pods
}

func (h *podHost) pod(name string) api.Pod {
	h.t.Helper()
	for _, p := range h.pods() {
		if p.Name == name {
			return p
		}
	}
	h.t.Fatalf("weir pod list does not have %s", name)
	return api.Pod{}
}

// ownLinks returns the names of the interfaces on the host that Weir made.
func (h *podHost) ownLinks() (names []string) {
	h.t.Helper()
	links, err := h.host.Netlink().Links()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Alias, "weir:") {
			names = append(names, l.Name)
		}
	}
	return names
}

// TestPodsMeetTheRules: pods are reached exactly where the rules say, from outside, from each other
// and from the host, and a label's table follows pods as they come and go.
func TestPodsMeetTheRules(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	h := newPodHost(t, `
add check-state
add allow tcp from table(role=client) to table(app=web) 80 setup keep-state
add allow tcp from 10.66.0.2,fd66::2 to any 80 via pod:web setup keep-state
add allow tcp from any to any 80 in via eth0 setup keep-state
add allow tcp from me to table(app=web) 81 setup keep-state
`)
	web, webPod := h.attach("web", "--label", "app=web")
	nginx(t, web, 80, 81)
	frontend, _ := h.attach("frontend", "--label", "role=client")
	outsider, _ := h.attach("outsider")
	for _, a := range webPod.Addrs {
		url := "http://" + netip.AddrPortFrom(a, 80).String() + "/"
		reach(t, frontend, url)
		refuse(t, outsider, url)
		reach(t, h.outside, url)
		refuse(t, h.host, url)
		reach(t, h.host, "http://"+netip.AddrPortFrom(a, 81).String()+"/")
	}
	if out := h.weir("fw", "table", "app=web", "list"); !strings.Contains(out,
		webPod.Addrs[0].String()+"/") {
		t.Errorf("weir fw table app=web list:\n%s", out)
	}
	if out := h.weir("fw", "why", "in via eth0 tcp 192.0.2.1:4000 -> "+webPod.Addrs[0].String()+
		":81"); !strings.Contains(out, "is dropped by rule 65535") {
		t.Errorf("weir fw why:\n%s", out)
	}
	h.weir("pod", "detach", "frontend")
	again, _ := h.attach("again", "--label", "role=client")
	reach(t, again, "http://"+netip.AddrPortFrom(webPod.Addrs[0], 80).String()+"/")
	if out := h.weir("pod", "list"); !strings.Contains(out, "app=web") ||
		strings.Contains(out, "frontend") {
		t.Errorf("weir pod list:\n%s", out)
	}
}

// TestPodsOutliveTheAgent: a killed agent changes nothing for pods, the next one finds them, and
// down leaves no trace of them.
func TestPodsOutliveTheAgent(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	h := newPodHost(t,
		"add allow tcp from any to table(app=web) 80 keep-state\n"+
			"add allow tcp from any to any out keep-state\n")
	web, p := h.attach("web", "--label", "app=web")
	nginx(t, web, 80)
	url := "http://" + netip.AddrPortFrom(p.Addrs[0], 80).String() + "/"
	reach(t, h.host, url)
	h.kill()
	reach(t, h.host, url)
	h.start()
	reach(t, h.host, url)
	if got := h.pod("web"); got.Index != p.Index || got.Addrs[0] != p.Addrs[0] {
		t.Errorf("after the restart the pod is %+v, was %+v", got, p)
	}
	h.downLeavesNothing()
}

// downLeavesNothing runs weir down and wants neither interfaces nor records of pods afterwards.
func (h *podHost) downLeavesNothing() {
	h.t.Helper()
	h.weir("down")
	h.wait()
	for _, name := range h.ownLinks() {
		h.t.Errorf("down left %s", name)
	}
	if _, err := os.Stat(filepath.Join(h.root, "var/lib/weir")); !os.IsNotExist(err) {
		h.t.Errorf("down left the state directory: %v", err)
	}
}

// cni calls the plugin as a runtime does.
func (h *podHost) cni(command, container, netns, config string, args ...string) (out map[string]any,
	took time.Duration) {
	h.t.Helper()
	plugin := filepath.Join(h.root, "weir-cni")
	if _, err := os.Lstat(plugin); os.IsNotExist(err) {
		if err := os.Symlink(weir, plugin); err != nil {
			h.t.Fatal(err)
		}
	}
	cmd := h.host.Command(plugin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+container,
		"CNI_NETNS="+netns, "CNI_IFNAME=eth0", "CNI_PATH="+cmp.Or(h.plugins, "/usr/lib/cni"),
		"CNI_ARGS="+strings.Join(args, ";"))
	cmd.Stdin = strings.NewReader(config)
	began := time.Now()
	text, err := cmd.Output()
	took = time.Since(began)
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			h.t.Fatalf("%s: %v\n%s", command, err, text)
		}
	}
	if err != nil && out["code"] == nil {
		h.t.Fatalf("%s: %v without an error object\n%s", command, err, text)
	}
	return out, took
}

// pluginConfig returns a network configuration of a CNI version, with more fields if need be.
func (h *podHost) pluginConfig(version, more string) string {
	return fmt.Sprintf(`{"cniVersion":%q,"name":"net","type":"weir-cni","root":%q%s}`, version,
		h.root, more)
}

// TestPlugin: every command of CNI through the plugin binary, in every version.
func TestPlugin(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	for i, v := range []string{"0.4.0", "1.0.0", "1.1.0"} {
		h.pluginVersion(fmt.Sprint("c", i), v)
	}
	if out, _ := h.cni("STATUS", "", "", h.pluginConfig("1.1.0", "")); out != nil {
		t.Errorf("STATUS: %v", out)
	}
	if out, _ := h.cni("VERSION", "", "",
		`{"cniVersion":"1.0.0"}`); out["supportedVersions"] == nil {
		t.Errorf("VERSION: %v", out)
	}
	h.pluginGarbage()
	h.pluginHostLocal()
	h.kill()
	late := h.lab.Node("late")
	if out, _ := h.cni("ADD", "late", late.Path(), h.pluginConfig("1.0.0", "")); out["code"] !=
		11.0 || !strings.Contains(fmt.Sprint(out["details"]), "weir up") {
		t.Errorf("ADD without an agent: %v", out)
	}
	if out, _ := h.cni("STATUS", "", "", h.pluginConfig("1.1.0", "")); out["code"] != 50.0 {
		t.Errorf("STATUS without an agent: %v", out)
	}
}

// pluginVersion adds, checks and deletes a container in one version of CNI.
func (h *podHost) pluginVersion(id, version string) {
	t := h.t
	node := h.lab.Node(id)
	config := h.pluginConfig(version, "")
	result, took := h.cni("ADD", id, node.Path(), config)
	if result["ips"] == nil {
		t.Fatalf("%s ADD: %v", version, result)
	}
	t.Logf("%s ADD took %v", version, took)
	first := result["ips"].([]any)[0].(map[string]any)
	address := netip.MustParsePrefix(first["address"].(string)).Addr()
	if out, err := h.host.Command("ping", "-c1", "-W300",
		address.String()).CombinedOutput(); err != nil {
		t.Errorf("%s: ping %s: %v\n%s", version, address, err, out)
	}
	previous, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	check := h.pluginConfig(version, `,"prevResult":`+string(previous))
	if out, _ := h.cni("CHECK", id, node.Path(), check); out != nil {
		t.Errorf("%s CHECK: %v", version, out)
	}
	node.IP("addr del " + address.String() + "/32 dev eth0")
	if out, _ := h.cni("CHECK", id, node.Path(), check); out["code"] != 101.0 {
		t.Errorf("%s CHECK of a pod without its address: %v", version, out)
	}
	for range 2 {
		out, took := h.cni("DEL", id, "", config)
		if out != nil {
			t.Errorf("%s DEL: %v", version, out)
		}
		t.Logf("%s DEL took %v", version, took)
	}
}

// pluginGarbage: GC removes what the runtime does not name. What belongs to no network of CNI, or
// to another one, is not this network's garbage.
func (h *podHost) pluginGarbage() {
	t := h.t
	config := h.pluginConfig("1.1.0", "")
	h.cni("ADD", "kept", h.lab.Node("kept").Path(), config)
	h.cni("ADD", "lost", h.lab.Node("lost").Path(), config)
	h.attach("by-hand")
	other := strings.Replace(config, `"name":"net"`, `"name":"other"`, 1)
	h.cni("ADD", "other", h.lab.Node("other").Path(), other)
	if out, _ := h.cni("GC", "", "", h.pluginConfig("1.1.0",
		`,"cni.dev/valid-attachments":[{"containerID":"kept","ifname":"eth0"}]`)); out != nil {
		t.Errorf("GC: %v", out)
	}
	if pods := h.pods(); len(pods) != 3 || pods[0].Container != "kept" ||
		pods[1].Name != "by-hand" || pods[2].Network != "other" {
		t.Errorf("GC left %+v", pods)
	}
	if out, _ := h.cni("GC", "", "", other); out["code"] != 7.0 || len(h.pods()) != 3 {
		t.Errorf("GC that does not say what to keep: %v, left %+v", out, h.pods())
	}
	if out, _ := h.cni("GC", "", "",
		strings.Replace(other, "}", `,"cni.dev/valid-attachments":[]}`, 1)); out != nil {
		t.Errorf("GC of the other network: %v", out)
	}
	if pods := h.pods(); len(pods) != 2 || pods[0].Container != "kept" ||
		pods[1].Name != "by-hand" {
		t.Errorf("GC of the other network left %+v", pods)
	}
}

// pluginHostLocal: another plugin gives the address, the routes and the name servers.
func (h *podHost) pluginHostLocal() {
	t := h.t
	resolv := h.file("resolv.conf", "nameserver 10.99.7.53\n")
	config := h.pluginConfig("1.0.0", fmt.Sprintf(`,"ipam":{"type":"host-local","dataDir":%q,`+
		`"resolvConf":%q,"ranges":[[{"subnet":"10.99.7.0/24"}]],`+
		`"routes":[{"dst":"10.66.0.0/24"},{"dst":"10.99.0.0/16","gw":"10.99.7.1"}]}`,
		filepath.Join(h.root, "ipam"), resolv))
	extern := h.lab.Node("extern")
	out, _ := h.cni("ADD", "extern", extern.Path(), config)
	if out["ips"] == nil ||
		out["ips"].([]any)[0].(map[string]any)["address"] != "10.99.7.2/32" ||
		fmt.Sprint(out["dns"]) != "map[nameservers:[10.99.7.53]]" {
		t.Fatalf("ADD with host-local: %v", out)
	}
	routes, err := extern.Command("ip", "-4", "route").Output()
	for _, want := range []string{"10.66.0.0/24 via 10.99.7.1 dev eth0",
		"10.99.0.0/16 via 10.99.7.1 dev eth0"} {
		if err != nil || !strings.Contains(string(routes), want) ||
			strings.Contains(string(routes), "default") {
			t.Errorf("routes of host-local: %v\n%s", err, routes)
		}
	}
	if fmt.Sprint(out["routes"]) != "[map[dst:10.66.0.0/24 gw:10.99.7.1] "+
		"map[dst:10.99.0.0/16 gw:10.99.7.1]]" {
		t.Errorf("ADD with host-local: routes %v", out["routes"])
	}
	previous, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	check := strings.Replace(config, `"root"`, `"prevResult":`+string(previous)+`,"root"`, 1)
	if out, _ := h.cni("CHECK", "extern", extern.Path(), check); out != nil {
		t.Errorf("CHECK with host-local: %v", out)
	}
	if out, _ := h.cni("DEL", "extern", "", config); out != nil {
		t.Errorf("DEL with host-local: %v", out)
	}
	if left, _ := filepath.Glob(filepath.Join(h.root, "ipam/net/10.*")); len(left) != 0 {
		t.Errorf("DEL left addresses with host-local: %v", left)
	}
}
