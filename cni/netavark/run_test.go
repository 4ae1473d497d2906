package netavark

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/pod"
)

// node is an agent that records its requests. The real one is tested in test/.
type node struct {
	cni.Agent
	root    string
	request *pod.Spec
	gone    string
	refuse  error
}

func (n *node) Attach(_ context.Context, s pod.Spec) (cni.Reply, error) {
	n.request = &s
	return cni.Reply{MAC: "02:00:00:00:00:01", MTU: 1500,
		Addrs:       addrs("10.88.0.2", "fd00:88::2"),
		Gateways:    addrs("10.88.0.1", "fd00:88::1"),
		Nameservers: addrs("10.88.0.1")}, n.refuse
}

func (n *node) Detach(_ context.Context, container, ifName string) error {
	n.gone = container + "/" + ifName
	return n.refuse
}

func addrs(all ...string) (list []netip.Addr) {
	for _, a := range all {
		list = append(list, netip.MustParseAddr(a))
	}
	return list
}

// call calls the plugin and returns its exit status and what it prints.
func call(t *testing.T, n *node, stdin string, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	code = Run(t.Context(), Call{Args: args, Version: "1.2.3", Stdin: strings.NewReader(stdin),
		Stdout: &b, Dial: func(root string) (cni.Agent, error) {
			n.root = root
			return n, nil
		}})
	return code, strings.TrimSpace(b.String())
}

// sameJSON compares two texts by their values.
func sameJSON(t *testing.T, got, want string) bool {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		t.Errorf("%v: %s", err, got)
		return false
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(a, b)
}

// asked is the request of setup as the description of the protocol has it.
const asked = `{"container_id":"752947ff91f9","container_name":"testctr",
	"port_mappings":[
		{"container_port":80,"host_ip":"127.0.0.1","host_port":8080,"protocol":"tcp","range":1},
		{"container_port":53,"host_ip":"","host_port":5300,"protocol":"udp,tcp","range":2},
		{"container_port":81,"host_ip":"::","host_port":81,"protocol":"","range":0}],
	"network":{"dns_enabled":false,"driver":"weir","id":"2f25","internal":false,
		"ipv6_enabled":false,"name":"pods","network_interface":null,
		"options":{"label.app":"web","mtu":"1400","root":"/srv"},
		"ipam_options":{"driver":"none"},"subnets":null,"routes":null,
		"network_dns_servers":null},
	"network_options":{"aliases":["752947ff91f9"],"interface_name":"eth1",
		"static_ips":["10.88.0.50"],"static_mac":"aa:bb:cc:dd:aa:00",
		"options":{"label.tier":"1","label.app":"web"}}}`

func TestSetup(t *testing.T) {
	n := &node{}
	code, out := call(t, n, asked, "setup", "/run/netns/x")
	if code != 0 || !sameJSON(t, out, `{"dns_search_domains":["weir"],
		"dns_server_ips":["10.88.0.1"],"interfaces":{"eth1":{"mac_address":"02:00:00:00:00:01",
		"subnets":[{"gateway":"10.88.0.1","ipnet":"10.88.0.2/32"},
			{"gateway":"fd00:88::1","ipnet":"fd00:88::2/128"}]}}}`) {
		t.Errorf("exit %d, %s", code, out)
	}
	want := pod.Spec{Network: "pods", Container: "752947ff91f9", Name: "testctr",
		Netns: "/run/netns/x", IfName: "eth1", MTU: 1400, Aliases: []string{"752947ff91f9"},
		Addrs:  addrs("10.88.0.50"),
		MAC:    pod.MAC{0xaa, 0xbb, 0xcc, 0xdd, 0xaa, 0},
		Labels: map[string]string{"app": "web", "tier": "1"}, Fixed: []string{"app"},
		Publish: []pod.Publish{
			{Proto: 6, Host: netip.MustParseAddr("127.0.0.1"), HostPort: 8080, Port: 80},
			{Proto: 17, HostPort: 5300, Port: 53}, {Proto: 17, HostPort: 5301, Port: 54},
			{Proto: 6, HostPort: 5300, Port: 53}, {Proto: 6, HostPort: 5301, Port: 54},
			{Proto: 6, HostPort: 81, Port: 81}}}
	if n.root != "/srv" || !reflect.DeepEqual(*n.request, want) {
		t.Errorf("the agent at %s got\n%+v, want\n%+v", n.root, *n.request, want)
	}
	code, out = call(t, n, asked, "teardown", "/run/netns/x")
	if code != 0 || out != "" || n.gone != "752947ff91f9/eth1" {
		t.Errorf("teardown: exit %d, %s, detached %s", code, out, n.gone)
	}
	for _, args := range [][]string{nil, {"info"}} {
		code, out = call(t, n, "", args...)
		if code != 0 || !sameJSON(t, out, `{"version":"1.2.3","api_version":"1.0.0"}`) {
			t.Errorf("info: exit %d, %s", code, out)
		}
	}
}

// TestSetupRefuses: an answer that netavark shows, and nothing asked of the agent.
func TestSetupRefuses(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"label.app":"web","mtu"`, `"labels.app":"web","mtu"`, "unknown option labels.app=web"},
		{`"mtu":"1400"`, `"mtu":"big"`, "mtu=big is not a number"},
		{`"1","label.app":"web"`, `"1","label.app":"db"`, "network pods sets the label app=web"},
		{`"label.tier":"1"`, `"root":"/x"`, "the option root is the network's"},
		{`"tcp","range":1`, `"icmp","range":1`, `protocol "icmp" cannot be published`},
		{`5300,"protocol":"udp,tcp","range":2`, `65535,"protocol":"udp","range":2`,
			"ports go from 1 to 65535"},
		{`"host_port":8080`, `"host_port":0`, "give a port of the host"},
		{`127.0.0.1`, `localhost`, "localhost"},
		{`aa:bb:cc:dd:aa:00`, `x`, "static_mac"},
		{`{"container_id"`, `{{`, "read the request"},
	} {
		text := strings.Replace(asked, c.old, c.new, 1)
		if text == asked {
			t.Fatalf("%q is not in the request", c.old)
		}
		n := &node{}
		code, out := call(t, n, text, "setup", "/run/netns/x")
		var e failure
		if err := json.Unmarshal([]byte(out), &e); code != 1 || err != nil ||
			!strings.Contains(e.Error, c.want) || n.request != nil {
			t.Errorf("%s: exit %d, %s, request %+v", c.new, code, out, n.request)
		}
	}
	n := &node{refuse: errors.New("no free address")}
	for args, want := range map[string]string{"setup /x": "no free address",
		"teardown /x": "no free address", "setup": "the path of the network namespace is missing",
		"remove": `unknown command \"remove\"`} {
		code, out := call(t, n, asked, strings.Fields(args)...)
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %s", args, code, out)
		}
	}
}

// TestCreate: the network comes back with all its fields, without podman's addresses and names.
func TestCreate(t *testing.T) {
	const given = `{"name":"pods","id":"2f25","driver":"weir","created":"2026-01-01T00:00:00Z",
		"ipv6_enabled":false,"internal":false,"dns_enabled":true,"labels":{"a":"b"},
		"options":{"label.app":"web","mtu":"1400"}}`
	code, out := call(t, &node{}, given, "create")
	want := strings.Replace(given, `"dns_enabled":true`,
		`"dns_enabled":false,"ipam_options":{"driver":"none"}`, 1)
	if code != 0 || !sameJSON(t, out, want) {
		t.Errorf("exit %d, %s", code, out)
	}
	for more, want := range map[string]string{
		`"subnets":[{"subnet":"10.0.0.0/16"}]`:                          "[pods] ranges",
		`"ipam_options":{"driver":"dhcp"}`:                              "--ipam-driver dhcp",
		`"ipam_options":{"driver":"host-local"}`:                        "[pods] ranges",
		`"internal":true`:                                               "--internal",
		`"network_interface":"eth0"`:                                    "--interface-name eth0",
		`"routes":[{"destination":"10.0.0.0/8","gateway":"10.88.0.1"}]`: "--route",
		`"network_dns_servers":["10.0.0.53"]`:                           "--dns",
		`"options":{"lable.app":"web"}`:                                 "unknown option lable.app=web",
		`"options":7`:                                                   "read the network",
	} {
		code, out := call(t, &node{}, `{"name":"pods","driver":"weir",`+more+`}`, "create")
		if code != 1 || !strings.Contains(out, want) || !strings.Contains(out, `"error"`) {
			t.Errorf("%s: exit %d, %s", more, code, out)
		}
	}
}
