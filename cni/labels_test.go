package cni

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestAuthorsLabels: a pod's author cannot change the labels of the configuration, and sets only
// those that it allows.
func TestAuthorsLabels(t *testing.T) {
	annotation := func(key, value string) string {
		return fmt.Sprintf(`,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"weir.labels/%s":%q}}`, key, value)
	}
	for _, c := range []struct {
		name, more, args string
		want             map[string]string
		refused          string
	}{
		{name: "nothing requested", want: map[string]string{"zone": "untrusted"}},
		{name: "annotation against the configuration", more: annotation("zone", "trusted"),
			want: map[string]string{"zone": "untrusted"}},
		{name: "arguments against the configuration", args: "WEIR_LABELS=zone=trusted",
			want: map[string]string{"zone": "untrusted"}},
		{name: "args against the configuration",
			more: `,"args":{"cni":{"labels":[{"key":"zone","value":"trusted"}]}}`,
			want: map[string]string{"zone": "untrusted"}},
		{name: "a key that is not allowed", more: annotation("app", "admin"),
			refused: `does not let pods set the label "app"`},
		{name: "the same by arguments", args: "WEIR_LABELS=app=admin",
			refused: `add "podLabels": ["app"]`},
		{name: "the same by args",
			more:    `,"args":{"cni":{"labels":[{"key":"app","value":"admin"}]}}`,
			refused: "app=admin"},
		{name: "allowed", more: annotation("app", "web") + `,"podLabels":["app"]`,
			want: map[string]string{"zone": "untrusted", "app": "web"}},
		{name: "allowed, but fixed", more: annotation("zone", "trusted") + `,"podLabels":["*"]`,
			want: map[string]string{"zone": "untrusted"}},
		{name: "a prefix", more: annotation("team.a", "x") + `,"podLabels":["team.*"]`,
			want: map[string]string{"zone": "untrusted", "team.a": "x"}},
		{name: "not that prefix", more: annotation("team", "x") + `,"podLabels":["team.*"]`,
			refused: `"team"`},
		{name: "its namespace", more: annotation("shop.app", "x") +
			`,"podLabels":["{namespace}.*"]`, args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=p",
			want: map[string]string{"zone": "untrusted", "shop.app": "x"}},
		{name: "another namespace", more: annotation("bank.app", "x") +
			`,"podLabels":["{namespace}.*"]`, args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=p",
			refused: "bank.app"},
		{name: "a namespace that looks like a pattern", more: annotation("app", "admin") +
			`,"podLabels":["{namespace}"]`, args: "K8S_POD_NAMESPACE=*;K8S_POD_NAME=p",
			refused: `"app"`},
		{name: "no namespace", more: annotation(".app", "x") + `,"podLabels":["{namespace}.*"]`,
			refused: ".app"},
		{name: "bad pattern", more: `,"podLabels":["a*b"]`,
			refused: "'*' may stand only at the end"},
	} {
		n := &node{}
		env := addEnv()
		env.Args = c.args
		code, out := call1(t, n, env,
			`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","labels":{"zone":"untrusted"}`+
				c.more+"}")
		if c.refused != "" {
			if text := fmt.Sprint(out["msg"], out["details"]); out["code"] != 7.0 ||
				!strings.Contains(text, c.refused) || n.request.Container != "" {
				t.Errorf("%s: exit %d, %v, request %+v", c.name, code, out, n.request)
			}
		} else if code != 0 || !maps.Equal(n.request.Labels, c.want) {
			t.Errorf("%s: exit %d, %v, labels %v, want %v", c.name, code, out, n.request.Labels,
				c.want)
		}
	}
}

// TestNamesOfPods: the pods of a namespace have names of their own, also when both have the same
// name.
func TestNamesOfPods(t *testing.T) {
	long := strings.Repeat("n", 63) + "." + strings.Repeat("p", 253)
	for args, want := range map[string]string{
		"K8S_POD_NAME=web":                                              "web",
		"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web":                       "shop.web",
		"K8S_POD_NAMESPACE=x;K8S_POD_NAME=x":                            "x.x",
		"K8S_POD_NAMESPACE=" + long[:63] + ";K8S_POD_NAME=" + long[64:]: long,
		"WEIR_NAME=mine;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web":        "mine",
	} {
		n, env := &node{}, addEnv()
		env.Args = args
		if code, out := call1(t, n, env,
			`{"cniVersion":"1.0.0","name":"net","type":"weir-cni"}`); code != 0 ||
			n.request.Name != want {
			t.Errorf("%s: exit %d, %v, name %q", args, code, out, n.request.Name)
		}
	}
}

// TestGCWithoutList: a garbage collection without a list of what to keep detaches nothing.
func TestGCWithoutList(t *testing.T) {
	env := addEnv()
	env.Command = "GC"
	for more, wants := range map[string]bool{
		"": false, `,"cni.dev/valid-attachments":null`: false,
		`,"cni.dev/valid-attachments":[]`: true, `,"cni.dev/attachments":[]`: true,
	} {
		n := &node{}
		code, out := call1(t, n, env, `{"cniVersion":"1.1.0","name":"net","type":"weir-cni"`+more+
			"}")
		if wants != (code == 0) || wants != n.swept || !wants && out["code"] != 7.0 {
			t.Errorf("%q: exit %d, %v, collected %v", more, code, out, n.swept)
		}
	}
}

// TestCheckPassesAddresses: CHECK compares with the addresses that the runtime has recorded for
// this interface.
func TestCheckPassesAddresses(t *testing.T) {
	env := addEnv()
	env.Command = "CHECK"
	config := func(result string) string {
		return `{"cniVersion":"1.0.0","name":"net","type":"weir-cni","prevResult":{"cniVersion":"1.0.0",` + result + `}}`
	}
	n := &node{}
	code, out := call1(t, n, env, config(`"interfaces":[{"name":"weir0"},{"name":"eth0","sandbox":"/run/netns/c1"},{"name":"eth1","sandbox":"/run/netns/c1"}],
		"ips":[{"address":"10.88.0.2/32","interface":1},{"address":"fd00:88::2/128","interface":1},{"address":"10.88.0.3/32","interface":2}]`))
	want := []netip.Addr{netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("fd00:88::2")}
	if code != 0 || !slices.Equal(n.expected, want) {
		t.Errorf("exit %d, %v, compared with %v", code, out, n.expected)
	}
	code, out = call1(t, n, env,
		config(`"interfaces":[{"name":"eth1","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.88.0.3/32","interface":0}]`))
	if code == 0 || out["code"] != 101.0 {
		t.Errorf("no address of the interface: exit %d, %v", code, out)
	}
}
