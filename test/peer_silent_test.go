package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// TestLongSilentPeer: a peer that does not know this node's key does not answer, and the status
// says so after a minute, with what to do, until the first handshake. So it does where the rules of
// this host refuse what is sent. A peer to which nothing is sent is left out.
func TestLongSilentPeer(t *testing.T) {
	nstest.RequireRoot(t)
	t.Parallel()
	const all = "add allow ip from any to any\n"
	for name, rules := range map[string]string{"key": all,
		"rules": "add deny udp from any to any 51820 out via eth0\n" + all} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silentPeer(t, newHosts(t, rules, all), all)
		})
	}
}

// silentPeer tries a peer of the left host that does not answer, and makes it answer.
func silentPeer(t *testing.T, h *hosts, rules string) {
	left, right := h.keys()
	h.left.weir("peer", "add", "right", "--key", right, "--endpoint", "10.66.0.2:51820", "--pods",
		"10.88.2.0/24")
	h.left.weir("peer", "add", "idle", "--key", strings.Repeat("A", 42)+"E=", "--endpoint",
		"10.66.0.3:51820", "--pods", "10.88.3.0/24")
	c, err := h.left.host.DialContext(t.Context(), "udp", "10.88.2.9:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("datagram"))
	if advice := h.left.problem(t, "10.66.0.2:51820 for 1m"); !strings.Contains(advice,
		"UDP") || !strings.Contains(advice, "weir peer key") {
		t.Errorf("the advice is %q", advice)
	}
	var s api.Status
	out, _, _ := h.left.try("status", "-j") // fails while there are problems
	if unmarshal(t, out, &s); len(s.Problems) != 1 {
		t.Errorf("more is wrong: %+v", s.Problems)
	}
	h.left.weir("fw", "load", h.left.file("etc/weir/rules", rules))
	h.right.weir("peer", "add", "left", "--key", left, "--endpoint", "10.66.0.1:51820", "--pods",
		"10.88.1.0/24")
	eventually(t, "the peer answers", func() error {
		c.Write([]byte("datagram"))
		if p := h.left.peers().Peers; len(p) != 2 || p[1].Handshake == nil {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	h.left.problem(t, "")
}
