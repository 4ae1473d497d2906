package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// TestPacketsThatWaitInVain: packets to a peer with which no session begins are shown with the
// reason for which they were dropped, by `weir peer list`, `weir status` and the metrics.
func TestPacketsThatWaitInVain(t *testing.T) {
	nstest.RequireRoot(t)
	need(t, "curl")
	t.Parallel()
	h := newHosts(t, "add allow ip from any to any\n", "add allow ip from any to any\n")
	_, right := h.keys()
	h.left.weir("peer", "add", "right", "--key", right, "--pods", "10.88.2.0/24")
	c, err := h.left.host.DialContext(t.Context(), "udp", "10.88.2.9:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// More than may wait; how many the kernel takes at once is up to it.
	eventually(t, "packets are dropped for newer ones", func() error {
		for range 50 {
			c.Write([]byte("datagram"))
		}
		if p := h.left.peers().Peers; len(p) != 1 || p[0].DroppedQueueFull == 0 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	if out := h.left.weir("peer", "list"); !strings.Contains(out, " as too many waited") {
		t.Errorf("weir peer list says\n%s", out)
	}
	before := h.left.peers().Peers[0]
	h.left.weir("peer", "remove", "right")
	var s api.Status
	unmarshal(t, h.left.weir("status", "-j"), &s)
	if s.Tunnel == nil || s.Tunnel.DroppedQueueFull < before.DroppedQueueFull ||
		s.Tunnel.DroppedNoSession == 0 || before.DroppedNoSession != 0 {
		t.Errorf("after the peer is removed, weir status -j says %+v", s.Tunnel)
	}
	out := h.left.weir("status")
	if !strings.Contains(out, " as too many waited, ") || !strings.Contains(out, " as none came") {
		t.Errorf("weir status says\n%s", out)
	}
	text, err := h.left.host.Command("curl", "-sS", "--unix-socket", h.left.root+
		"/run/weir/read.sock", "http://localhost/metrics").Output()
	if err != nil || !strings.Contains(string(text),
		`weir_tunnel_wait_dropped_total{reason="no-session"} `) ||
		strings.Contains(string(text), `weir_tunnel_wait_dropped_total{reason="queue-full"} 0`) {
		t.Errorf("the metrics say %v\n%s", err, text)
	}
}
