package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/pod"
)

// node is an agent that records its requests. The real one is tested with a real dockerd in test/.
type node struct {
	request  pod.Spec
	gone     []string
	reserved map[netip.Addr]bool
	refuse   error
}

var (
	range4 = Range{netip.MustParsePrefix("10.88.0.0/24"), netip.MustParseAddr("10.88.0.1")}
	range6 = Range{netip.MustParsePrefix("fd00:88::/120"), netip.MustParseAddr("fd00:88::1")}
)

func (n *node) Attach(_ context.Context, r pod.Spec) (cni.Reply, error) {
	n.request = r
	return cni.Reply{InnerIf: "weir0a1b2c3dp",
		Gateways: []netip.Addr{range4.Gateway, range6.Gateway}}, n.refuse
}

func (n *node) Detach(_ context.Context, container, ifName string) error {
	n.gone = append(n.gone, container+"/"+ifName)
	return n.refuse
}
func (n *node) Check(context.Context, string, string, []netip.Addr) error { return nil }
func (n *node) Attached(context.Context, string, string) (bool, error)    { return false, nil }
func (n *node) GC(context.Context, string, []string) error                { return nil }
func (n *node) Status(context.Context) error                              { return nil }
func (n *node) Ranges() []Range {
	return []Range{range4, range6}
}
func (n *node) Unreserve(a netip.Addr) { delete(n.reserved, a) }
func (n *node) Reserve(a netip.Addr) (netip.Addr, error) {
	if a.IsUnspecified() {
		a = map[bool]netip.Addr{true: netip.MustParseAddr("10.88.0.9"),
			false: netip.MustParseAddr("fd00:88::9")}[a.Is4()]
	}
	if n.reserved[a] {
		return a, errors.New("address in use")
	}
	n.reserved[a] = true
	return a, nil
}

// call sends a request of dockerd and returns the answer's text.
func call(t *testing.T, d *Driver, method, body string) string {
	t.Helper()
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/"+method, strings.NewReader(body)))
	if w.Code != 200 || !json.Valid(w.Body.Bytes()) {
		t.Fatalf("%s: status %d, %s", method, w.Code, w.Body)
	}
	return string(bytes.TrimSpace(w.Body.Bytes()))
}

func TestRequests(t *testing.T) {
	n := &node{reserved: map[netip.Addr]bool{}}
	d := New(n, filepath.Join(t.TempDir(), "networks"))
	for _, step := range []struct{ method, body, want string }{
		{"Plugin.Activate", "", `{"Implements":["NetworkDriver","IpamDriver"]}`},
		{"NetworkDriver.GetCapabilities", "", `{"ConnectivityScope":"local","Scope":"local"}`},
		{"IpamDriver.GetDefaultAddressSpaces", "",
			`{"GlobalDefaultAddressSpace":"weir","LocalDefaultAddressSpace":"weir"}`},
		{"IpamDriver.RequestPool", `{"AddressSpace":"weir"}`,
			`{"Data":{},"Pool":"10.88.0.0/24","PoolID":"10.88.0.0/24"}`},
		{"IpamDriver.RequestPool", `{"V6":true}`,
			`{"Data":{},"Pool":"fd00:88::/120","PoolID":"fd00:88::/120"}`},
		{"IpamDriver.RequestPool", `{"Pool":"172.20.0.0/16"}`,
			`{"Err":"weir: subnet 172.20.0.0/16 is not this node's pod range 10.88.0.0/24; leave --subnet out",` +
				`"Error":"weir: subnet 172.20.0.0/16 is not this node's pod range 10.88.0.0/24; leave --subnet out"}`},
		{"IpamDriver.RequestAddress",
			`{"PoolID":"10.88.0.0/24","Options":{"RequestAddressType":"com.docker.network.gateway"}}`, `{"Address":"10.88.0.1/24","Data":{}}`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n","IPv4Data":[{"Pool":"10.88.0.0/24"}]}`,
			`{}`},
		{"IpamDriver.RequestAddress", `{"PoolID":"10.88.0.0/24"}`,
			`{"Address":"10.88.0.9/32","Data":{}}`},
		{"IpamDriver.RequestAddress", `{"PoolID":"10.88.0.0/24","Address":"10.88.0.9"}`,
			`{"Err":"weir: address in use",` +
				`"Error":"weir: address in use"}`},
		{"NetworkDriver.CreateEndpoint", `{"NetworkID":"n","EndpointID":"0123456789abcdef","Interface":{"Address":"10.88.0.9/32"},
			"Options":{"weir.label.app":"web","com.docker.network.portmap":[{"Proto":6,"Port":80,"HostIP":"","HostPort":8080,"HostPortEnd":8080},
			{"Proto":6,"Port":81,"HostIP":"0.0.0.0","HostPort":8081,"HostPortEnd":8081}]}}`, `{"Interface":{}}`},
		{"NetworkDriver.Join",
			`{"NetworkID":"n","EndpointID":"0123456789abcdef","SandboxKey":"/var/run/docker/netns/x"}`,
			`{"InterfaceName":{"SrcName":"weir0a1b2c3dp","DstPrefix":"eth"},"Gateway":"10.88.0.1","GatewayIPv6":"fd00:88::1",` +
				`"StaticRoutes":[{"Destination":"10.88.0.1/32","RouteType":1},{"Destination":"10.88.0.0/24","RouteType":0,"NextHop":"10.88.0.1"},` +
				`{"Destination":"fd00:88::1/128","RouteType":1},{"Destination":"fd00:88::/120","RouteType":0,"NextHop":"fd00:88::1"}]}`},
		{"NetworkDriver.Leave", `{"EndpointID":"0123456789abcdef"}`, `{}`},
		{"NetworkDriver.DeleteEndpoint", `{"EndpointID":"0123456789abcdef"}`, `{}`},
		{"IpamDriver.ReleaseAddress", `{"PoolID":"10.88.0.0/24","Address":"10.88.0.9"}`, `{}`},
		{"NetworkDriver.DeleteNetwork", `{"NetworkID":"n"}`, `{}`},
	} {
		if got := call(t, d, step.method, step.body); got != step.want {
			t.Errorf("%s %s\n got %s\nwant %s", step.method, step.body, got, step.want)
		}
	}
	want := pod.Spec{
		Container: "0123456789abcdef", Name: "0123456789ab", Netns: "/var/run/docker/netns/x",
		IfName: "eth0", RuntimeMovesInterface: true, OnlyAddrs: true,
		Addrs:  []netip.Addr{netip.MustParseAddr("10.88.0.9")},
		Labels: map[string]string{"app": "web"},
		Publish: []pod.Publish{{Proto: 6, HostPort: 8080, Port: 80},
			{Proto: 6, Host: netip.IPv4Unspecified(), HostPort: 8081, Port: 81}},
	}
	if !reflect.DeepEqual(n.request, want) {
		t.Errorf("the agent got\n%+v, want\n%+v", n.request, want)
	}
	if len(n.gone) != 2 || n.gone[0] != "0123456789abcdef/eth0" || len(n.reserved) != 0 {
		t.Errorf("detached %v, still reserved %v", n.gone, n.reserved)
	}
}

// TestRangeWithRoutes: dockerd takes no range in which the host has routes, and asks for another
// one without an end. The second time the answer is what to do.
func TestRangeWithRoutes(t *testing.T) {
	d := New(&node{reserved: map[netip.Addr]bool{}}, filepath.Join(t.TempDir(), "networks"))
	const pool, hint = `"Pool":"10.88.0.0/24"`, "--subnet 10.88.0.0/24"
	for _, step := range []struct{ method, body, want string }{
		{"IpamDriver.RequestPool", `{}`, pool},
		{"IpamDriver.RequestPool", `{}`, hint},
		{"IpamDriver.ReleasePool", `{"PoolID":"10.88.0.0/24"}`, `{}`},
		{"IpamDriver.RequestPool", `{}`, pool},
		{"IpamDriver.RequestAddress", `{"PoolID":"10.88.0.0/24"}`, "10.88.0.9"},
		{"IpamDriver.RequestPool", `{}`, pool},
		{"IpamDriver.RequestPool", `{"V6":true}`, `"Pool":"fd00:88::/120"`},
		{"IpamDriver.RequestPool", `{"V6":true}`, "--subnet fd00:88::/120"},
		{"IpamDriver.RequestPool", `{"Pool":"10.88.0.0/24"}`, pool},
		{"IpamDriver.RequestPool", `{"Pool":"10.88.0.0/24"}`, pool},
	} {
		if got := call(t, d, step.method, step.body); !strings.Contains(got, step.want) {
			t.Errorf("%s %s: %s, want %q", step.method, step.body, got, step.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	d := New(&node{reserved: map[netip.Addr]bool{}, refuse: errors.New("range is full")},
		filepath.Join(t.TempDir(), "networks"))
	for _, c := range []struct{ method, body, want string }{
		{"NetworkDriver.CreateNetwork", `{"IPv4Data":[{"Pool":"172.18.0.0/16"}]}`,
			"create the network with --ipam-driver weir"},
		{"NetworkDriver.CreateNetwork",
			`{"NetworkID":"n","Options":{"com.docker.network.internal":true}}`,
			"--internal is not supported: the rules of the host decide what its containers reach"},
		{"NetworkDriver.CreateEndpoint",
			`{"EndpointID":"e","Options":{"com.docker.network.portmap":[{"Proto":6,"Port":80}]}}`,
			"give it, as in -p 8080:80"},
		{"NetworkDriver.CreateEndpoint", `{"EndpointID":"e","Interface":{"Address":"x"}}`,
			"endpoint address"},
		{"NetworkDriver.Join", `{"EndpointID":"never-created"}`,
			"unknown endpoint never-created"},
		{"NetworkDriver.Leave", `{"EndpointID":"e"}`, "range is full"},
		{"IpamDriver.RequestAddress",
			`{"PoolID":"10.88.0.0/24","Address":"10.88.0.7","Options":{"RequestAddressType":"com.docker.network.gateway"}}`, "the gateway of 10.88.0.0/24 is 10.88.0.1"},
		{"NetworkDriver.Join", `{`, "unexpected EOF"},
	} {
		if got := call(t, d, c.method, c.body); !strings.Contains(got, `{"Err":"weir: `) ||
			strings.Count(got, c.want) != 2 || !strings.Contains(got, `"Error":"weir: `) {
			t.Errorf("%s %s: %s, want an error with %q", c.method, c.body, got, c.want)
		}
	}
}
