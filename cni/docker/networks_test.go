package docker

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// network is a request to make a network with options.
func network(id, options string) string {
	return fmt.Sprintf(`{"NetworkID":%q,"IPv4Data":[{"Pool":"10.88.0.0/24"}],"Options":`+
		`{"com.docker.network.enable_ipv6":false,"com.docker.network.generic":{%s}}}`, id, options)
}

// TestNetworkLabels: the options of a network give its containers labels, whichever agent made the
// network, until it is removed. Those of a container go first.
func TestNetworkLabels(t *testing.T) {
	file := filepath.Join(t.TempDir(), "networks")
	n := &node{reserved: map[netip.Addr]bool{}}
	attached := func(network, options string) map[string]string {
		t.Helper()
		d := New(n, file)
		if got := call(t, d, "NetworkDriver.CreateEndpoint", fmt.Sprintf(`{"NetworkID":%q,`+
			`"EndpointID":"e","Options":{%s}}`, network, options)); strings.Contains(got, "Err") {
			t.Fatal(got)
		}
		call(t, d, "NetworkDriver.Join", `{"EndpointID":"e","SandboxKey":"/ns"}`)
		return n.request.Labels
	}
	for id, options := range map[string]string{
		"shop":  `"weir.label.app":"web","weir.label.tier":"front","other":"1"`,
		"plain": ``, "beside": `"weir.label.app":"db"`,
	} {
		if got := call(t, New(n, file), "NetworkDriver.CreateNetwork",
			network(id, options)); got != "{}" {
			t.Fatal(got)
		}
	}
	for _, c := range []struct {
		network, options string
		want             map[string]string
	}{
		{"shop", ``, map[string]string{"app": "web", "tier": "front"}},
		{"shop", `"weir.label.app":"api"`, map[string]string{"app": "api", "tier": "front"}},
		{"beside", ``, map[string]string{"app": "db"}},
		{"plain", ``, map[string]string{}},
		{"older than labels", ``, map[string]string{}},
	} {
		if got := attached(c.network, c.options); !reflect.DeepEqual(got, c.want) {
			t.Errorf("network %s, options %s: %v, want %v", c.network, c.options, got, c.want)
		}
	}
	for _, id := range []string{"shop", "beside", "plain"} {
		body := fmt.Sprintf(`{"NetworkID":%q}`, id)
		if got := call(t, New(n, file), "NetworkDriver.DeleteNetwork", body); got != "{}" {
			t.Error(got)
		}
	}
	if got := attached("shop", ``); len(got) != 0 {
		t.Errorf("a network that is gone gives %v", got)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file stays although no network has labels")
	}
}

// TestNetworkOptionsAreRefused: an option that would have no effect is refused.
func TestNetworkOptionsAreRefused(t *testing.T) {
	d := New(&node{}, filepath.Join(t.TempDir(), "networks"))
	for options, want := range map[string]string{
		`"weir.name":"web"`:           "a network has weir.label.KEY=VALUE",
		`"weir.labels.app":"web"`:     "a network has weir.label.KEY=VALUE",
		`"weir.label.app":true`:       "a network has weir.label.KEY=VALUE",
		`"weir.label.app":"two word"`: "only letters",
	} {
		if got := call(t, d, "NetworkDriver.CreateNetwork",
			network("n", options)); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want an error with %q", options, got, want)
		}
	}
}

// TestContainerOptionsAreRefused: a container does not start without the label that a misspelt
// option was to give it. Options of others are ignored.
func TestContainerOptionsAreRefused(t *testing.T) {
	d := New(&node{}, filepath.Join(t.TempDir(), "networks"))
	for options, want := range map[string]string{
		`"weir.labels.app":"web"`:      "option weir.labels.app=",
		`"weir.lable.app":"web"`:       "option weir.lable.app=",
		`"weir.label.app":1`:           "option weir.label.app=1",
		`"weir.names":"web"`:           "option weir.names=",
		`"other":"1","weir.name":"db"`: `{"Interface":{}}`,
	} {
		if got := call(t, d, "NetworkDriver.CreateEndpoint", fmt.Sprintf(`{"NetworkID":"n",`+
			`"EndpointID":"e","Options":{%s}}`, options)); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", options, got, want)
		}
	}
}

// TestDamagedNetworks: a container whose labels are not known does not start without them.
func TestDamagedNetworks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "networks")
	d := New(&node{}, file)
	for _, text := range []string{"", "{", `{"version":2,"labels":{}}`, `{"version":1}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for method, body := range map[string]string{
			"CreateEndpoint": `{"NetworkID":"n","EndpointID":"e"}`,
			"CreateNetwork":  network("n", `"weir.label.app":"web"`),
			"DeleteNetwork":  `{"NetworkID":"n"}`,
		} {
			if got := call(t, d, "NetworkDriver."+method, body); !strings.Contains(got,
				"create the networks with labels again") {
				t.Errorf("%q: %s: %s", text, method, got)
			}
		}
		if left, err := os.ReadFile(file); err != nil || string(left) != text {
			t.Errorf("%q became %q, %v", text, left, err)
		}
	}
}
