package test

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
)

// TestBinat: by weir.toml a server behind the host has addresses of the host for itself, one of the
// host's and one that is only routed to it. It has them in both directions, also without the agent.
// The only address of an interface is not given away, and no other element waits for that.
func TestBinat(t *testing.T) {
	t.Parallel()
	h := newForwardLab(t)
	h.outside.Route("198.51.100.9/32", "10.66.0.1")
	h.file("etc/weir/weir.toml", "interfaces = [\"eth*\"]\n[[binat]]\nlisten = \"198.51.100.9\"\n"+
		"to = \"10.0.5.9\"\n[[binat]]\nlisten = \"fd66::3\"\nto = \"fd00:5::9\"\n")
	rules := h.file("etc/weir/rules", forwardRules)
	h.start("--rules", rules)
	for _, to := range []string{"198.51.100.9:80", "[fd66::3]:81"} {
		h.connect(h.outside, "tcp", to)
	}
	h.connect(h.outside, "udp", "198.51.100.9:80")
	for _, to := range []string{"10.66.0.2:7", "[fd66::2]:7"} { // which know no way back
		h.connect(h.server, "tcp", to)
	}
	h.exchanged("at the start")
	var s api.Status
	h.json(&s, "status", "-j")
	if len(s.Binats) != 2 || !s.Healthy || !strings.Contains(h.weir("status"),
		"binat: 198.51.100.9 to 10.0.5.9\n") {
		t.Errorf("status: %+v, healthy %v, %v", s.Binats, s.Healthy, s.Problems)
	}
	h.kill()
	h.exchanged("without the agent")
	h.start()
	h.exchanged("after a restart")
	h.kill()
	h.file("etc/weir/weir.toml", "interfaces = [\"eth*\"]\n[[binat]]\nlisten = \"10.66.0.1\"\n"+
		"to = \"10.0.5.8\"\n[[binat]]\nlisten = \"198.51.100.9\"\nto = \"10.0.5.9\"\n")
	h.start()
	out, _, err := h.try("status")
	if err == nil || !strings.Contains(out, "[[binat]] 1 of weir.toml is not in force: listen: "+
		"10.66.0.1 is the only address of its interface") ||
		strings.Contains(out, "binat: 10.66.0.1") {
		t.Errorf("the only address: %v\n%s", err, out)
	}
	h.connect(h.outside, "tcp", "198.51.100.9:80") // which does not wait for the other one
}
