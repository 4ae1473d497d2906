package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/pod"
)

// plugin puts an IPAM plugin into CNI_PATH that returns a result, and notes the commands that it
// gets.
func plugin(t *testing.T, name, result string) (commands func() string) {
	t.Helper()
	return scripted(t, name, fmt.Sprintf("[ $CNI_COMMAND != ADD ] || echo '%s'", result))
}

// scripted is plugin with the lines that it runs.
func scripted(t *testing.T, name, lines string) (commands func() string) {
	t.Helper()
	dir := t.TempDir()
	noted := filepath.Join(dir, "commands")
	script := fmt.Sprintf("#!/bin/sh\necho $CNI_COMMAND >>%s\n%s\n", noted, lines)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CNI_PATH", dir)
	return func() string {
		text, err := os.ReadFile(noted)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(text)), " ")
	}
}

const delegates = `{"cniVersion":"1.0.0","name":"net","type":"weir-cni","ipam":{"type":"fake"}}`

// TestGivenByIPAM: addresses, gateways, routes and DNS of another IPAM are the container's.
func TestGivenByIPAM(t *testing.T) {
	plugin(t, "fake", `{"cniVersion":"1.0.0",
		"ips":[{"address":"10.78.0.5/24","gateway":"10.78.0.1"},{"address":"fd78::5/64"}],
		"routes":[{"dst":"10.0.0.0/8","gw":"10.78.0.1"},{"dst":"0.0.0.0/0"},
			{"dst":"::/0","gw":"fd78::1"}],
		"dns":{"nameservers":["10.78.0.53"]}}`)
	n := &node{}
	code, out := call1(t, n, addEnv(), delegates)
	if code != 0 {
		t.Fatalf("exit %d, %v", code, out)
	}
	r := n.request
	if fmt.Sprint(r.Addrs, r.NextHops, r.Routes, r.ExternalIPAM) != "[10.78.0.5 fd78::5] "+
		"[10.78.0.1 fd78::1] [10.0.0.0/8 0.0.0.0/0 ::/0] true" {
		t.Errorf("the agent got %+v", r)
	}
	if fmt.Sprint(out["dns"]) != "map[nameservers:[10.78.0.53]]" {
		t.Errorf("dns %v", out["dns"])
	}
}

// TestRefusedOfIPAM: what a container cannot have is refused with its reason, and the addresses are
// given back.
func TestRefusedOfIPAM(t *testing.T) {
	const addr = `"ips":[{"address":"10.78.0.5/24","gateway":"10.78.0.1"}]`
	for result, want := range map[string]string{
		`"ips":[]`: "no address",
		`"ips":[{"address":"10.78.0.5/24","gateway":"fd78::1"}]`: "of another family",
		addr + `,"routes":[{"dst":"10.0.0.0/8","gw":"10.78.0.254"}]`: "the route to 10.0.0.0/8 has " +
			"the gateway 10.78.0.254, another one has 10.78.0.1",
		addr + `,"routes":[{"dst":"10.0.0.0/8","gw":"fd78::1"}]`: "of another family",
		addr + `,"routes":[{"dst":"10.0.0.0/8","mtu":1400}]`:     "has mtu, advmss",
		addr + `,"routes":[{"dst":"10.0.0.0/8","priority":5}]`:   "has mtu, advmss",
		addr + `,"routes":[{"dst":"10.0.0.0/8","table":7}]`:      "has mtu, advmss",
		addr + `,"routes":[{"dst":"10.0.0.0/8","scope":0}]`:      "has mtu, advmss",
		addr + `,"routes":[{"dst":"10.0.0.0/8","advmss":1400}]`:  "has mtu, advmss",
	} {
		commands := plugin(t, "fake", `{"cniVersion":"1.1.0",`+result+`}`)
		n := &node{}
		code, out := call1(t, n, addEnv(), strings.Replace(delegates, "1.0.0", "1.1.0", 1))
		if code != 1 || out["code"] != 7.0 || !strings.Contains(fmt.Sprint(out["msg"]), want) ||
			out["details"] == "" || n.request.Container != "" {
			t.Errorf("%s: exit %d, %v, request %+v", result, code, out, n.request)
		}
		if got := commands(); got != "ADD DEL" {
			t.Errorf("%s: the plugin was called with %s", result, got)
		}
	}
}

// TestRepeatedADD: an ADD that fails keeps the addresses if the container is attached, or may be:
// it was repeated without a DEL, and the pod that runs has them.
func TestRepeatedADD(t *testing.T) {
	const good = `{"cniVersion":"1.0.0","ips":[{"address":"10.78.0.5/24","gateway":"10.78.0.1"}]}`
	const bad = `{"cniVersion":"1.0.0","ips":[{"address":"10.78.0.5/24","gateway":"fd78::1"}]}`
	refused := errors.New("pod c1 is attached already")
	for _, c := range []struct {
		name, result, commands string
		node                   node
	}{
		{"attached", good, "ADD", node{refuse: refused, attached: true}},
		{"attached, bad addresses", bad, "ADD", node{attached: true}},
		{"agent is down", good, "ADD", node{refuse: down{}, lost: down{}}},
		{"first one", good, "ADD DEL", node{refuse: refused}},
	} {
		commands := plugin(t, "fake", c.result)
		if code, out := call1(t, &c.node, addEnv(), delegates); code != 1 {
			t.Errorf("%s: exit %d, %v", c.name, code, out)
		}
		if got := commands(); got != c.commands {
			t.Errorf("%s: the plugin was called with %s", c.name, got)
		}
	}
}

// TestFailedADDOfIPAM: a plugin whose ADD failed gets a DEL, since it may have left something, but
// not for a container that runs. What a failed DEL says is shown, too.
func TestFailedADDOfIPAM(t *testing.T) {
	const fails = `[ $CNI_COMMAND != ADD ] || { echo '{"code":9,"msg":"no address left"}'; exit 1; }`
	const delFails = fails +
		"\n" + `[ $CNI_COMMAND != DEL ] || { echo '{"code":9,"msg":"no lock"}'; exit 1; }`
	for _, c := range []struct {
		lines, commands, want string
		node                  node
	}{
		{fails, "ADD DEL", "no address left", node{}},
		{fails, "ADD", "no address left", node{attached: true}},
		{delFails, "ADD DEL", "no address left\nno lock", node{}},
	} {
		commands := scripted(t, "fake", c.lines)
		code, out := call1(t, &c.node, addEnv(), delegates)
		if code != 1 || out["code"] != 102.0 || !strings.HasSuffix(fmt.Sprint(out["msg"]), c.want) {
			t.Errorf("exit %d, %v", code, out)
		}
		if got := commands(); got != c.commands {
			t.Errorf("the plugin was called with %s, want %s", got, c.commands)
		}
	}
}

// lateNode is an agent for which the time of the call is over before it answers.
type lateNode struct {
	node
	end context.CancelFunc
}

func (n *lateNode) Attach(ctx context.Context, _ pod.Spec) (Reply, error) {
	n.end()
	return Reply{}, ctx.Err()
}

func (n *lateNode) Attached(ctx context.Context, _, _ string) (bool, error) {
	return false, ctx.Err()
}

// TestUndoAfterTheTimeOfTheADD: an ADD whose time is over releases what the plugin assigned.
func TestUndoAfterTheTimeOfTheADD(t *testing.T) {
	commands := plugin(t, "fake", `{"cniVersion":"1.0.0","ips":[{"address":"10.78.0.5/24"}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	n := &lateNode{end: cancel}
	if code := Run(ctx, addEnv(), strings.NewReader(delegates), io.Discard,
		func(string) (Agent, error) { return n, nil }); code != 1 {
		t.Errorf("exit %d", code)
	}
	if got := commands(); got != "ADD DEL" {
		t.Errorf("the plugin was called with %s", got)
	}
}

// TestNullsOfIPAM: a result with null in a list is refused in each version, and what the plugin
// assigned is released.
func TestNullsOfIPAM(t *testing.T) {
	for _, version := range Versions {
		for _, list := range []string{"ips", "routes", "interfaces"} {
			commands := plugin(t, "fake",
				fmt.Sprintf(`{"cniVersion":"%s","%s":[null]}`, version, list))
			code, out := call1(t, &node{}, addEnv(),
				strings.Replace(delegates, "1.0.0", version, 1))
			if code != 1 || out["code"] != 102.0 ||
				!strings.Contains(fmt.Sprint(out["msg"]), list+" contains null") {
				t.Errorf("%s, %s: exit %d, %v", version, list, code, out)
			}
			if got := commands(); got != "ADD DEL" {
				t.Errorf("%s, %s: the plugin was called with %s", version, list, got)
			}
		}
	}
}

// TestStatusOfIPAM: the node is not ready for containers if the delegated plugin is not.
func TestStatusOfIPAM(t *testing.T) {
	env := addEnv()
	env.Command = "STATUS"
	config := strings.Replace(delegates, "1.0.0", "1.1.0", 1)
	for answer, want := range map[string]float64{
		`{"code":50,"msg":"no address left"}`: 50, `{"code":51,"msg":"no address left"}`: 51,
		`{"code":102,"msg":"no address left"}`: 50,
	} {
		commands := scripted(t, "fake", "echo '"+answer+"'; exit 1")
		code, out := call1(t, &node{}, env, config)
		if code != 1 || out["code"] != want ||
			!strings.Contains(fmt.Sprint(out["msg"]), "IPAM plugin fake: no address left") {
			t.Errorf("%s: exit %d, %v", answer, code, out)
		}
		if got := commands(); got != "STATUS" {
			t.Errorf("the plugin was called with %s", got)
		}
	}
	commands := plugin(t, "fake", "")
	if code, out := call1(t, &node{}, env, config); code != 0 || commands() != "STATUS" {
		t.Errorf("exit %d, %v", code, out)
	}
}

// TestDHCPIsRefused: with a reason and without a call of the plugin; what did not begin can end.
func TestDHCPIsRefused(t *testing.T) {
	commands := plugin(t, "dhcp", `{}`)
	config := strings.NewReplacer("fake", "dhcp", "1.0.0", "1.1.0").Replace(delegates)
	for command, want := range map[string]int{"ADD": 1, "STATUS": 1, "DEL": 0} {
		n, env := &node{}, addEnv()
		env.Command = command
		code, out := call1(t, n, env, config)
		if code != want || code == 1 && (out["code"] != 7.0 ||
			!strings.Contains(fmt.Sprint(out["msg"]), "dhcp cannot be used") ||
			!strings.Contains(fmt.Sprint(out["details"]), "host-local")) {
			t.Errorf("%s: exit %d, %v", command, code, out)
		}
		if n.request.Container != "" {
			t.Errorf("%s: the agent is asked for %+v", command, n.request)
		}
	}
	if got := commands(); got != "" {
		t.Errorf("the plugin was called with %s", got)
	}
}
