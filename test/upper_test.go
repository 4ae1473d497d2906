package test

import (
	"strings"
	"testing"
)

// TestBridgeUplink: a host whose uplink is a port of a bridge translates what crosses both once,
// with all interfaces guarded, also when the bridge comes and goes.
func TestBridgeUplink(t *testing.T) {
	t.Parallel()
	h := newForwardLab(t)
	ip := func(commands ...string) {
		t.Helper()
		for _, c := range commands {
			out, err := h.host.Command("ip", strings.Fields(c)...).CombinedOutput()
			if err != nil {
				t.Fatalf("ip %s: %v: %s", c, err, out)
			}
		}
	}
	// without a link-local address the host asks for no neighbour
	for _, name := range []string{"default", "eth0"} {
		h.host.Sysctl("net.ipv6.conf."+name+".dad_transmits", "0")
	}
	bridge := func() {
		t.Helper()
		ip("link add br0 type bridge", "link set eth0 master br0", "addr flush dev eth0",
			"link set br0 up", "addr add 10.66.0.1/24 dev br0", "addr add fd66::1/64 dev br0 nodad",
			"addr add fd66::3/128 dev br0 nodad")
	}
	bridge()
	h.file("etc/weir/weir.toml", strings.Replace(forwardSettings, "eth*", "*", 1))
	rules := h.file("etc/weir/rules", forwardRules)
	h.start("--rules", rules)
	check := func(when string) {
		t.Helper()
		for _, to := range []string{"10.66.0.2:7", "[fd66::2]:7"} {
			h.connect(h.server, "tcp", to)
		}
		for _, to := range []string{"10.66.0.1:8080", "[fd66::1]:8080"} {
			h.connect(h.outside, "tcp", to)
		}
		h.connect(h.outside, "udp", "10.66.0.1:8080")
		h.exchanged(when)
	}
	check("at the start")
	h.kill()
	h.exchanged("without the agent")
	h.start("--rules", rules)
	h.exchanged("started again")

	h.open = nil
	ip("link del br0", "link set eth0 down", "link set eth0 up", "addr add 10.66.0.1/24 dev eth0",
		"addr add fd66::1/64 dev eth0 nodad", "addr add fd66::3/128 dev eth0 nodad")
	check("without the bridge")
	h.open = nil
	bridge()
	check("with a new bridge")
}
