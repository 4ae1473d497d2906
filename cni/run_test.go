package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
)

// node is an agent that records its requests. The real one is tested through the plugin
// binary in test/.
type node struct {
	request pod.Spec
	gone    []string
	kept    []string
	refuse  error

	swept    bool         // GC was called
	expected []netip.Addr // of Check

	attached bool  // there is a pod
	lost     error // of the question whether there is one
}

func (n *node) Attach(_ context.Context, r pod.Spec) (Reply, error) {
	n.request = r
	if n.refuse != nil {
		return Reply{}, n.refuse
	}
	return Reply{
		HostIf: "weir0a1b2c3d", HostMAC: "02:00:00:00:00:02", MAC: "02:00:00:00:00:01", MTU: 1500,
		Addrs:    []netip.Addr{netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("fd00:88::2")},
		Gateways: []netip.Addr{netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("fd00:88::1")},
	}, nil
}

func (n *node) Detach(_ context.Context, container, ifName string) error {
	n.gone = append(n.gone, container+"/"+ifName)
	return n.refuse
}
func (n *node) Check(_ context.Context, _, _ string, addrs []netip.Addr) error {
	n.expected = addrs
	return n.refuse
}
func (n *node) Attached(context.Context, string, string) (bool, error) {
	return n.attached, n.lost
}
func (n *node) Status(context.Context) error { return n.refuse }

func (n *node) GC(_ context.Context, network string, list []string) error {
	n.swept = true
	for _, a := range list {
		n.kept = append(n.kept, network+" "+a)
	}
	return n.refuse
}

// down is the error of an agent that does not run.
type down struct{}

func (down) Error() string   { return "no node is running" }
func (down) Temporary() bool { return true }

func addEnv() Env {
	return Env{Command: "ADD", Container: "c1", Netns: "/run/netns/c1", IfName: "eth0",
		Path: "/opt/cni/bin"}
}

func call1(t *testing.T, n *node, env Env, stdin string) (code int, out map[string]any) {
	t.Helper()
	var b bytes.Buffer
	code = Run(context.Background(), env, strings.NewReader(stdin), &b,
		func(string) (Agent, error) { return n, nil })
	if b.Len() > 0 {
		if err := json.Unmarshal(b.Bytes(), &out); err != nil {
			t.Fatalf("stdout is not JSON: %v\n%s", err, b.Bytes())
		}
	}
	return code, out
}

func TestAddInEveryVersion(t *testing.T) {
	for _, v := range Versions {
		n := &node{}
		code, out := call1(t, n, addEnv(), `{"cniVersion":"`+v+`","name":"net","type":"weir-cni"}`)
		if code != 0 || out["cniVersion"] != v {
			t.Fatalf("%s: exit %d, %v", v, code, out)
		}
		ips := out["ips"].([]any)
		if len(ips) != 2 || ips[0].(map[string]any)["address"] != "10.88.0.2/32" ||
			ips[0].(map[string]any)["gateway"] != "10.88.0.1" {
			t.Errorf("%s: ips %v", v, ips)
		}
		if i := ips[0].(map[string]any)["interface"]; i != 1.0 {
			t.Errorf("%s: the address is on interface %v, want 1", v, i)
		}
		inner := out["interfaces"].([]any)[1].(map[string]any)
		if inner["name"] != "eth0" || inner["sandbox"] != "/run/netns/c1" {
			t.Errorf("%s: inner interface %v", v, inner)
		}
		if routes := out["routes"].([]any); len(routes) != 2 {
			t.Errorf("%s: routes %v", v, routes)
		}
	}
}

func TestAddPassesTheWholeRequest(t *testing.T) {
	n := &node{}
	env := addEnv()
	env.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1;WEIR_LABELS=tier=1"
	code, out := call1(t, n, env, `{"cniVersion":"1.0.0","name":"net","type":"weir-cni","mtu":1400,"labels":{"app":"web"},"podLabels":["tier","te*","{namespace}.zone"],
		"args":{"cni":{"labels":[{"key":"team","value":"a"}]},"other":{"x":1}},
		"runtimeConfig":{"mac":"02:00:00:00:00:09","ips":["10.88.0.9/24"],"other":"key",
			"bandwidth":{"ingressRate":1000000,"ingressBurst":80000,"egressRate":2000000,"egressBurst":160000},
			"io.kubernetes.cri.pod-annotations":{"weir.labels/shop.zone":"x","weir.labels/app":"admin","other":"y"},
			"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":53,"containerPort":53,"protocol":"UDP","hostIP":"192.0.2.1"},
				{"hostPort":0,"containerPort":9,"protocol":"tcp"},{"hostPort":81,"containerPort":81,"hostIP":"0.0.0.0"}]}}`)
	if code != 0 {
		t.Fatalf("exit %d, %v", code, out)
	}
	want := pod.Spec{
		Network: "net", Container: "c1", Name: "shop.web-1", Netns: "/run/netns/c1", IfName: "eth0",
		MTU: 1400, MAC: pod.MAC{2, 0, 0, 0, 0, 9},
		Addrs:  []netip.Addr{netip.MustParseAddr("10.88.0.9")},
		Labels: map[string]string{"app": "web", "tier": "1", "team": "a", "shop.zone": "x"},
		Fixed:  []string{"app"},
		Publish: []pod.Publish{{Proto: 6, HostPort: 8080, Port: 80},
			{Proto: 17, Host: netip.MustParseAddr("192.0.2.1"), HostPort: 53, Port: 53},
			{Proto: 6, Host: netip.IPv4Unspecified(), HostPort: 81, Port: 81}},
		Rates: forward.Rates{In: 1000000, InBurst: 10000, Out: 2000000, OutBurst: 20000},
	}
	if !reflect.DeepEqual(n.request, want) {
		t.Errorf("the agent got\n%+v, want\n%+v", n.request, want)
	}
}

// goodConfig is the configuration of the calls that are bad otherwise.
const goodConfig = `{"cniVersion":"1.1.0","name":"net","type":"weir-cni"}`

func addEnvWith(change func(*Env)) Env {
	e := addEnv()
	change(&e)
	return e
}

// badCalls are calls that fail, some because the agent does.
var badCalls = []struct {
	name  string
	env   Env
	stdin string
	agent error
	code  float64
	msg   string
}{
	{"not JSON", addEnv(), "{\n  \"cniVersion\": x", nil, 6, "line 2, column"},
	{"unknown key", addEnv(),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","labls":{}}`, nil, 7,
		`unknown field "labls"`},
	{"wrong type", addEnv(),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","mtu":"big"}`, nil, 7, "mtu"},
	{"old version", addEnv(), `{"cniVersion":"0.2.0","name":"net","type":"weir-cni"}`, nil, 1,
		`cniVersion "0.2.0"`},
	{"no name", addEnv(), `{"cniVersion":"1.1.0","type":"weir-cni"}`, nil, 7, "no name"},
	{"no command", addEnvWith(func(e *Env) { e.Command = "" }),
		goodConfig, nil, 4, `CNI_COMMAND is ""`},
	{"no container", addEnvWith(func(e *Env) { e.Container = "" }),
		goodConfig, nil, 4, "CNI_CONTAINERID is not set"},
	{"no namespace", addEnvWith(func(e *Env) { e.Netns = "" }),
		goodConfig, nil, 4, "CNI_NETNS is not set"},
	{"no interface", addEnvWith(func(e *Env) { e.IfName = "" }),
		goodConfig, nil, 4, "CNI_IFNAME is not set"},
	{"long interface", addEnvWith(func(e *Env) { e.IfName = "abcdefghijklmnop" }),
		goodConfig, nil, 4, "not an interface name"},
	{"bad container", addEnvWith(func(e *Env) { e.Container = "../x" }),
		goodConfig, nil, 4, "not a container id"},
	{"relative namespace", addEnvWith(func(e *Env) { e.Netns = "x" }),
		goodConfig, nil, 8, "not an absolute path"},
	{"bad arguments", addEnvWith(func(e *Env) { e.Args = "WEIR_LABELS=app" }),
		goodConfig, nil, 4, `label "app" is not KEY=VALUE`},
	{"bad address", addEnv(),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","runtimeConfig":{"ips":["10.0.0.300"]}}`, nil, 7, "10.0.0.300"},
	{"bad port", addEnv(),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","runtimeConfig":{"portMappings":[{"hostPort":70000,"containerPort":80}]}}`, nil, 7, "70000"},
	{"bad protocol", addEnv(),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","runtimeConfig":{"portMappings":[{"hostPort":7,"containerPort":80,"protocol":"icmp"}]}}`, nil, 7, "icmp"},
	{"bad mac", addEnv(),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","runtimeConfig":{"mac":"x"}}`,
		nil, 7, "MAC"},
	{"ipam path", addEnv(),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","ipam":{"type":"../sh"}}`, nil, 7,
		"is a path"},
	{"ipam missing", addEnv(),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","ipam":{"type":"there-is-none"}}`,
		nil, 102, "there-is-none"},
	{"agent refuses", addEnv(), goodConfig, errors.New("no free address"), 100, "no free address"},
	{"agent is down", addEnv(), goodConfig, down{}, 11, "does not answer"},
	{"chained after an interface", addEnv(),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/c1"}]}}`, nil, 7, "made interface eth0 already"},
	{"check without a result", addEnvWith(func(e *Env) { e.Command = "CHECK" }),
		goodConfig, nil, 7, "no prevResult"},
	{"check fails", addEnvWith(func(e *Env) { e.Command = "CHECK" }),
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.88.0.2/32"}]}}`, errors.New("lost its address"), 101, "lost its address"},
	{"del fails", addEnvWith(func(e *Env) { e.Command = "DEL" }),
		goodConfig, errors.New("busy"), 100, "busy"},
	{"del too early", addEnvWith(func(e *Env) { e.Command = "DEL" }), goodConfig,
		fmt.Errorf("%w: not taken over", ErrBusy), 11, "not taken over"},
	{"gc too old", addEnvWith(func(e *Env) { e.Command = "GC" }),
		`{"cniVersion":"1.0.0","name":"net","type":"weir-cni"}`, nil, 1,
		"needs specification 1.1.0"},
	{"status", addEnvWith(func(e *Env) { e.Command = "STATUS" }),
		goodConfig, errors.New("not ready"), 50, "not ready"},
}

func TestErrorsAreObjectsWithCodes(t *testing.T) {
	for _, c := range badCalls {
		code, out := call1(t, &node{refuse: c.agent}, c.env, c.stdin)
		msg, _ := out["msg"].(string)
		if code != 1 || out["code"] != c.code || !strings.Contains(msg, c.msg) ||
			out["cniVersion"] == "" {
			t.Errorf("%s: exit %d, %v; want code %v and %q", c.name, code, out, c.code, c.msg)
		}
		if details, _ := out["details"].(string); details == "" {
			t.Errorf("%s: %v has no details", c.name, out)
		}
	}
}

func TestCommandsWithoutResult(t *testing.T) {
	n := &node{}
	env := addEnv()
	env.Command, env.Netns = "DEL", ""
	if code, out := call1(t, n, env,
		`{"cniVersion":"0.4.0","name":"net","type":"weir-cni"}`); code != 0 || out != nil ||
		len(n.gone) != 1 || n.gone[0] != "c1/eth0" {
		t.Errorf("DEL: exit %d, %v, detached %v", code, out, n.gone)
	}
	env.Command = "GC"
	if code, out := call1(t, n, env,
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}`); code != 0 || out != nil || len(n.kept) != 1 || n.kept[0] != "net a/eth0" {
		t.Errorf("GC: exit %d, %v, kept %v", code, out, n.kept)
	}
	env.Command = "STATUS"
	if code, out := call1(t, n, env,
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni"}`); code != 0 || out != nil {
		t.Errorf("STATUS: exit %d, %v", code, out)
	}
	env.Command = "VERSION"
	if code, out := call1(t, n, env, `{"cniVersion":"1.0.0"}`); code != 0 ||
		out["cniVersion"] != "1.0.0" || len(out["supportedVersions"].([]any)) != 3 {
		t.Errorf("VERSION: exit %d, %v", code, out)
	}
}

func TestChainKeepsWhatWasThere(t *testing.T) {
	code, out := call1(t, &node{}, addEnv(), `{"cniVersion":"1.0.0","name":"net","type":"weir-cni",
		"prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"lo","sandbox":"/run/netns/c1"}],"ips":[{"address":"127.0.0.1/8","interface":0}]}}`)
	if code != 0 {
		t.Fatalf("exit %d, %v", code, out)
	}
	ips := out["ips"].([]any)
	if len(ips) != 3 || ips[0].(map[string]any)["address"] != "127.0.0.1/8" ||
		ips[1].(map[string]any)["interface"] != 2.0 {
		t.Errorf("ips %v", ips)
	}
}

// TestNullsOfPrevResult: they are refused with an error object.
func TestNullsOfPrevResult(t *testing.T) {
	for _, version := range Versions {
		for _, list := range []string{"ips", "routes", "interfaces"} {
			for _, command := range []string{"ADD", "CHECK"} {
				n := &node{}
				code, out := call1(t, n, addEnvWith(func(e *Env) { e.Command = command }),
					fmt.Sprintf(`{"cniVersion":%q,"name":"net","type":"weir-cni",
						"prevResult":{"cniVersion":%q,%q:[null]}}`, version, version, list))
				if code != 1 || out["code"] != 6.0 || n.request.Container != "" ||
					!strings.Contains(fmt.Sprint(out["msg"]), list+" contains null") {
					t.Errorf("%s, %s, %s: exit %d, %v", version, list, command, code, out)
				}
			}
		}
	}
}

func FuzzRun(f *testing.F) {
	f.Add("ADD", `{"cniVersion":"1.0.0","name":"net","type":"weir-cni"}`, "K8S_POD_NAME=x")
	f.Add("CHECK",
		`{"cniVersion":"1.1.0","name":"net","type":"weir-cni","prevResult":{"cniVersion":"1.1.0","ips":[{"address":"1.2.3.4/5"}]}}`, "")
	f.Add("GC", `{"cniVersion":"1.1.0","name":"n","type":"w","cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}]}`, ";;")
	f.Add("VERSION", `{`, "=")
	f.Fuzz(func(t *testing.T, command, stdin, args string) {
		if strings.Contains(stdin, "ipam") {
			t.Skip("would run a program")
		}
		env := addEnv()
		env.Command, env.Args = command, args
		var b bytes.Buffer
		code := Run(context.Background(), env, strings.NewReader(stdin), &b,
			func(string) (Agent, error) { return &node{}, nil })
		var out map[string]any
		if b.Len() > 0 && json.Unmarshal(b.Bytes(), &out) != nil {
			t.Fatalf("stdout is not JSON: %s", b.Bytes())
		}
		if code != 0 && (out["code"] == nil || out["msg"] == "") {
			t.Fatalf("exit %d without an error object: %s", code, b.Bytes())
		}
	})
}
