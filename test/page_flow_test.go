package test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// readFrom asks a node's socket for reading.
func readFrom(t *testing.T, h *podHost, into any, args ...string) {
	t.Helper()
	path := args[len(args)-1]
	args = append([]string{"--unix-socket", filepath.Join(h.root, "run/weir/read.sock")}, args...)
	args[len(args)-1] = "http://localhost" + path
	out, err := get(h.host, args...)
	if err != nil {
		t.Fatal(err)
	}
	unmarshal(t, out, into)
}

// datagram sends one from a node and returns its source.
func datagram(t *testing.T, from *nstest.Node, to string) netip.AddrPort {
	t.Helper()
	c, err := from.DialContext(t.Context(), "udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("datagram")); err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

// askFlow asks a host what it knows of a flow of the container client.
func askFlow(t *testing.T, h *podHost, src netip.AddrPort, dst string) (f api.Flow) {
	t.Helper()
	readFrom(t, h, &f, "-d", fmt.Sprintf(`{"proto":"udp","src":%q,"dst":%q,"hook":"in",`+
		`"recv":"pod:client"}`, src, dst), "/v1/flow")
	if f.Src.Kind != "pod" || f.Src.Name != "client" || f.Src.Labels["role"] != "client" {
		t.Errorf("the source is %+v", f.Src)
	}
	return f
}

// TestFlowsOfThePage: of a flow the page gets its ends, a pod with its labels and a pod of a peer.
// It also gets its states in both engines, its translation, and what would happen to it now. A
// change that is tried decides it again. The history has what rules and pods counted. No request
// changes anything.
func TestFlowsOfThePage(t *testing.T) {
	need(t, "curl")
	t.Parallel()
	// The states of single datagrams stay until they have been asked for.
	h := newHostsWith(t, [2]string{"[timeouts]\nudp = 600\n"}, wireRules+`
add check-state
add 200 deny udp from any to any 9
add 300 allow udp from any to any keep-state
table offices add 10.66.0.0/24
`, wireRules+"add allow ip from any to any\n")
	h.meet()
	client, _ := h.left.attach("client", "--addr", "10.88.1.2", "--label", "role=client")

	const peer, outside, denied = "10.88.2.9:5353", "10.66.0.2:5353", "10.66.0.2:9"
	src := datagram(t, client, peer)
	var f api.Flow
	eventually(t, "a state in each engine", func() error {
		if f = askFlow(t, h.left, src, peer); len(f.States) != 2 {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	if f.Dst.Kind != "peer" || f.Dst.Name != "right" || f.Dst.Peer == nil ||
		!f.Dst.Peer.Encrypted ||
		f.States[0].Engine+f.States[1].Engine != "tunnel" || f.States[0].Rule != 300 {
		t.Errorf("of a flow to a peer: %+v", f)
	}
	src = datagram(t, client, outside)
	eventually(t, "a translated state", func() error {
		if f = askFlow(t, h.left, src, outside); len(f.States) == 0 {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	if s := f.States[0]; !strings.HasPrefix(s.WireFrom, "10.66.0.1:") || s.WireTo != outside ||
		f.Dst.Kind != "" || f.Dst.Table != "offices" {
		t.Errorf("of a translated flow: %+v", f)
	}
	if f.Why == nil || !f.Why.Passed || f.Why.Rule != 300 || f.Why.Found == "" {
		t.Errorf("why: %+v %s", f.Why, f.Unknown)
	}
	src = datagram(t, client, denied)
	if f = askFlow(t, h.left, src, denied); len(f.States) != 0 || f.Why == nil ||
		f.Why.Passed || f.Why.Rule != 200 {
		t.Errorf("of a refused flow: %+v", f)
	}
	badFlowRequests(t, h.left)
	previewOnly(t, h.left)
	eventually(t, "the history", func() error {
		datagram(t, client, outside)
		var a api.History
		readFrom(t, h.left, &a, "/v1/history")
		pods, rules := fmt.Sprint(a.Pods), fmt.Sprint(a.Rules)
		if len(a.Times) == 0 || len(a.Times) != len(a.Traffic.BytesIn) ||
			!strings.Contains(pods, "client") ||
			!strings.Contains(rules, "allow udp from any to any") {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
}

// badFlowRequests: a request that names no flow gets an error that says why.
func badFlowRequests(t *testing.T, h *podHost) {
	t.Helper()
	for body, want := range map[string]string{
		`{"proto":"udp","src":"10.0.0.1:1","dst":"[::1]:2"}`:                 "one address family",
		`{"proto":"nonsense","src":"10.0.0.1:1","dst":"10.0.0.2:2"}`:         "nonsense",
		`{"proto":"udp","src":"10.0.0.1:1"}`:                                 "two addresses",
		`{"proto":"udp","src":"10.0.0.1:1","dst":"10.0.0.2:2","recv":"x y"}`: "",
	} {
		var e struct {
			api.Error
			Unknown string `json:"unknown"`
		}
		if readFrom(t, h, &e, "-d", body, "/v1/flow"); !strings.Contains(e.Message, want) ||
			want == "" && !strings.Contains(e.Unknown, "interface") {
			t.Errorf("%s: %+v", body, e)
		}
	}
}

// previewOnly tries a change: the client's datagrams of a moment ago would be refused. Nothing
// changes.
func previewOnly(t *testing.T, h *podHost) {
	t.Helper()
	before := h.weir("fw", "list")
	var tried api.Preview
	eventually(t, "a replay", func() error {
		readFrom(t, h, &tried, "-d", `{"text":"add 250 deny udp from any to any 5353",`+
			`"replay":"5m"}`, "/v1/preview")
		if !tried.Fine || tried.Replay == nil || tried.Replay.Refused == 0 {
			return fmt.Errorf("%+v", tried)
		}
		return nil
	})
	if c := tried.Replay.Changes[0]; c.Src != "10.88.1.2" || c.Port != 5353 ||
		c.Now.Rule != 300 || c.Then.Rule != 250 || c.Then.Passed {
		t.Errorf("replayed: %+v", tried.Replay)
	}
	if tried.Command != "weir fw add 250 deny udp from any to any 5353" {
		t.Errorf("the command is %q", tried.Command)
	}
	var e api.Error
	if readFrom(t, h, &e, "-d", `{"text":"add 1 deny ip from any to any","replay":"3y"}`,
		"/v1/preview"); !strings.Contains(e.Message, "not a duration") {
		t.Errorf("a replay of years: %+v", e)
	}
	if after := h.weir("fw", "list"); after != before {
		t.Errorf("the rules were\n%s\nand are\n%s", before, after)
	}
}
