package test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

const forwardSettings = `interfaces = ["eth*"]
[[forward]]
listen = "10.66.0.1:8080"
to = "10.0.5.9:80"
[[forward]]
listen = ":8080"
proto = "udp"
to = "10.0.5.9:80"
[[forward]]
listen = "[fd66::1]:8080-8081"
to = "[fd00:5::9]:80-81"
[[masquerade]]
source = "10.0.5.0/24"
[[masquerade]]
source = "fd00:5::/64"
to = "fd66::3"
`

const forwardRules = `add check-state
add allow ip from any to 10.0.5.9,fd00:5::9 80,81 keep-state
add allow ip from 10.0.5.9,fd00:5::9 to any 7 keep-state
add deny ip from any to any
`

// forwardLab is a host that forwards between the outside and a server:
//
//	outside  eth0 ------ eth0  host  eth1 ------ eth0  server
//	10.66.0.2            10.66.0.1   10.0.5.1          10.0.5.9
//	fd66::2              fd66::1,3   fd00:5::1         fd00:5::9
type forwardLab struct {
	*agentNode
	outside, host, server *nstest.Node
	open                  []net.Conn // echoed
}

func newForwardLab(t *testing.T) *forwardLab {
	t.Helper()
	lab := nstest.New(t)
	h := &forwardLab{outside: lab.Node("outside"), host: lab.Node("host"),
		server: lab.Node("server")}
	lab.Join(h.outside, "eth0", "10.66.0.2/24 fd66::2/64", h.host, "eth0",
		"10.66.0.1/24 fd66::1/64")
	lab.Join(h.server, "eth0", "10.0.5.9/24 fd00:5::9/64", h.host, "eth1",
		"10.0.5.1/24 fd00:5::1/64")
	h.server.Route("0.0.0.0/0", "10.0.5.1")
	h.server.Route("::/0", "fd00:5::1")
	h.host.Sysctl("net.ipv4.ip_forward", "0")
	add := h.host.Command("ip", "addr", "add", "fd66::3/128", "dev", "eth0", "nodad")
	if err := add.Run(); err != nil {
		t.Fatal(err)
	}
	echoes(t, h.server, 80, 81)
	echoes(t, h.outside, 7)
	datagrams, err := h.server.ListenPacket("udp", "10.0.5.9:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { datagrams.Close() })
	go echoDatagrams(datagrams)
	h.agentNode = newAgentNode(t, h.host)
	return h
}

// connect opens a connection, through which exchanged sends from then on.
func (h *forwardLab) connect(from *nstest.Node, network, to string) {
	h.t.Helper()
	c, err := from.DialContext(context.Background(), network, to)
	if err != nil {
		h.t.Fatalf("%s %s: %v", network, to, err)
	}
	h.t.Cleanup(func() { c.Close() })
	h.open = append(h.open, c)
}

// exchanged sends through every open connection.
func (h *forwardLab) exchanged(when string) {
	h.t.Helper()
	for _, c := range h.open {
		if err := exchange(c, testTimeout); err != nil {
			h.t.Errorf("%s: %s %s: %v", when, c.RemoteAddr().Network(), c.RemoteAddr(), err)
		}
	}
}

// shown wants the settings in the status and the translations in the list of states.
func (h *forwardLab) shown() {
	t := h.t
	t.Helper()
	var s api.Status
	h.json(&s, "status", "-j")
	if len(s.Forwards) != 3 || s.Forwards[2].Ports != 2 || !s.Healthy {
		t.Errorf("status: %+v, healthy %v, %v", s.Forwards, s.Healthy, s.Problems)
	}
	for _, want := range []struct{ shown, text string }{
		{h.weir("status"), "forward: udp 0.0.0.0:8080 to 10.0.5.9:80"},
		{h.weir("status"), "forward: tcp [fd66::1]:8080 to [fd00:5::9]:80, and the port after it"},
		{h.weir("status"), "masquerade: 10.0.5.0/24 as the address of the interface"},
		{h.weir("status"), "masquerade: fd00:5::/64 as fd66::3"},
		{h.weir("fw", "states"), "as 10.66.0.2:"},
		{h.weir("fw", "states"), "as 10.66.0.1:"},
		{h.weir("fw", "states"), "as [fd66::3]:"},
	} {
		if !strings.Contains(want.shown, want.text) {
			t.Errorf("no %q in\n%s", want.text, want.shown)
		}
	}
}

// TestForwardedPorts: ports of weir.toml lead to a server behind the host, and the server reaches
// the outside with an address of the host, without the agent too. Open connections continue through
// its restarts. Status and states show them. Without the settings the connections end.
func TestForwardedPorts(t *testing.T) {
	t.Parallel()
	h := newForwardLab(t)
	h.file("etc/weir/weir.toml", forwardSettings)
	rules := h.file("etc/weir/rules", forwardRules)
	h.start("--rules", rules)
	for _, to := range []string{"10.66.0.2:7", "[fd66::2]:7"} { // which know no way back
		h.connect(h.server, "tcp", to)
	}
	for _, to := range []string{"10.66.0.1:8080", "[fd66::1]:8080", "[fd66::1]:8081"} {
		h.connect(h.outside, "tcp", to)
	}
	h.connect(h.outside, "udp", "10.66.0.1:8080")
	h.exchanged("at the start")
	h.shown()
	h.kill()
	h.exchanged("without the agent")
	h.start("--rules", rules)
	h.exchanged("started again")
	h.stop()

	h.file("etc/weir/weir.toml", "interfaces = [\"eth*\"]\n")
	h.start("--rules", rules)
	for _, c := range h.open {
		if err := exchange(c, time.Second); err == nil {
			t.Errorf("%s %s continues without the setting", c.RemoteAddr().Network(),
				c.RemoteAddr())
		}
	}
	h.weir("down")
	h.wait()
	value, err := h.host.Command("cat", "/proc/sys/net/ipv4/ip_forward").Output()
	if err != nil || strings.TrimSpace(string(value)) != "0" {
		t.Errorf("after weir down net.ipv4.ip_forward is %s, %v", value, err)
	}
}

// TestForwardToTheHostItself: a target that is the host's own address is a problem with its place,
// and nothing is forwarded.
func TestForwardToTheHostItself(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	lab := nstest.New(t)
	outside, host := lab.Node("outside"), lab.Node("host")
	lab.Join(outside, "eth0", "10.66.0.2/24", host, "eth0", "10.66.0.1/24")
	lab.Join(lab.Node("other"), "eth0", "10.0.5.9/24", host, "eth1", "10.0.5.1/24")
	h := newAgentNode(t, host)
	h.file("etc/weir/weir.toml", "[[forward]]\nlisten = \":8080\"\nto = \"10.0.5.1:80\"\n")
	h.start("--rules", h.file("etc/weir/rules", "add allow ip from any to any\n"))
	out, _, err := h.try("status")
	if err == nil || !strings.Contains(out, "[[forward]] 1 of weir.toml is not in force: to: "+
		"10.0.5.1 is an address of this host") {
		t.Errorf("status: %v\n%s", err, out)
	}
}
