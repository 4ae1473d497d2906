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

// TestForwardedPorts: ports of weir.toml lead to a server behind the host, and the server reaches
// the outside with an address of the host, without the agent too; open connections continue through
// its restarts. Status and states show them. Without the settings the connections end.
func TestForwardedPorts(t *testing.T) {
	t.Parallel()
	nstest.Root(t)
	lab := nstest.New(t)
	outside, host, server := lab.Node("outside"), lab.Node("host"), lab.Node("server")
	lab.Join(outside, "eth0", "10.66.0.2/24 fd66::2/64", host, "eth0", "10.66.0.1/24 fd66::1/64")
	lab.Join(server, "eth0", "10.0.5.9/24 fd00:5::9/64", host, "eth1", "10.0.5.1/24 fd00:5::1/64")
	server.Route("0.0.0.0/0", "10.0.5.1")
	server.Route("::/0", "fd00:5::1")
	host.Sysctl("net.ipv4.ip_forward", "0")
	add := host.Command("ip", "addr", "add", "fd66::3/128", "dev", "eth0", "nodad")
	if err := add.Run(); err != nil {
		t.Fatal(err)
	}
	echoes(t, server, 80, 81)
	echoes(t, outside, 7)
	datagrams, err := server.ListenPacket("udp", "10.0.5.9:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { datagrams.Close() })
	go echoDatagrams(datagrams)

	h := newAgentNode(t, host)
	h.file("etc/weir/weir.toml", forwardSettings)
	rules := h.file("etc/weir/rules", forwardRules)
	h.start("--rules", rules)
	var open []net.Conn
	for _, to := range []string{"10.66.0.2:7", "[fd66::2]:7"} { // which know no way back
		c, err := server.DialContext(context.Background(), "tcp", to)
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		defer c.Close()
		open = append(open, c)
	}
	for _, to := range []struct{ network, address string }{{"tcp", "10.66.0.1:8080"},
		{"udp", "10.66.0.1:8080"}, {"tcp", "[fd66::1]:8080"}, {"tcp", "[fd66::1]:8081"}} {
		c, err := outside.DialContext(context.Background(), to.network, to.address)
		if err != nil {
			t.Fatalf("%s %s: %v", to.network, to.address, err)
		}
		defer c.Close()
		open = append(open, c)
	}
	say := func(when string) {
		t.Helper()
		for _, c := range open {
			if err := exchange(c, patience); err != nil {
				t.Errorf("%s: %s %s: %v", when, c.RemoteAddr().Network(), c.RemoteAddr(), err)
			}
		}
	}
	say("at the start")
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
	h.kill()
	say("without the agent")
	h.start("--rules", rules)
	say("started again")
	h.stop()

	h.file("etc/weir/weir.toml", "interfaces = [\"eth*\"]\n")
	h.start("--rules", rules)
	for _, c := range open {
		if err := exchange(c, time.Second); err == nil {
			t.Errorf("%s %s continues without the setting", c.RemoteAddr().Network(),
				c.RemoteAddr())
		}
	}
	h.weir("down")
	h.wait()
	value, err := host.Command("cat", "/proc/sys/net/ipv4/ip_forward").Output()
	if err != nil || strings.TrimSpace(string(value)) != "0" {
		t.Errorf("after weir down net.ipv4.ip_forward is %s, %v", value, err)
	}
}

// TestForwardToTheHostItself: a target that is the host's own address is a problem with its place,
// and nothing is forwarded.
func TestForwardToTheHostItself(t *testing.T) {
	t.Parallel()
	nstest.Root(t)
	lab := nstest.New(t)
	outside, host := lab.Node("outside"), lab.Node("host")
	lab.Join(outside, "eth0", "10.66.0.2/24", host, "eth0", "10.66.0.1/24")
	lab.Join(lab.Node("other"), "eth0", "10.0.5.9/24", host, "eth1", "10.0.5.1/24")
	h := newAgentNode(t, host)
	h.file("etc/weir/weir.toml", "[[forward]]\nlisten = \":8080\"\nto = \"10.0.5.1:80\"\n")
	h.start("--rules", h.file("etc/weir/rules", "add allow ip from any to any\n"))
	out, _, err := h.try("status")
	if err == nil || !strings.Contains(out, "forward 1: to: 10.0.5.1 is an address of this host") {
		t.Errorf("status: %v\n%s", err, out)
	}
}
