package test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// fwdRules send the server's packets for 203.0.113.9 to the outside, which the routing table does
// not, and the outside's calls of port 80 of any address to a proxy.
const fwdRules = `add 10 fwd 10.66.0.2 ip from 10.0.5.9 to 203.0.113.9 in recv eth1
add 20 fwd 127.0.0.1,3128 tcp from 10.66.0.2 to any 80 in recv eth0
add 30 allow ip from any to any
`

// proxyOn echoes on the host, with sockets that may speak in the name of others.
func proxyOn(t *testing.T, n *nstest.Node, addr string) {
	t.Helper()
	transparent := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		bad := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
		})
		if err == nil {
			err = bad
		}
		return err
	}}
	var l net.Listener
	if err := n.Do(func() (err error) {
		l, err = transparent.Listen(context.Background(), "tcp4", addr)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go nstest.Echo(l)
}

// TestFwdRules: rules with fwd lead to another next hop and to a proxy of the host, without any
// setting, without the agent and through its restarts. The host keeps a routing rule for it as long
// as the rules need it, and no longer.
func TestFwdRules(t *testing.T) {
	t.Parallel()
	h := newForwardLab(t)
	h.host.Sysctl("net.ipv4.ip_forward", "1")
	h.outside.Route("10.0.5.0/24", "10.66.0.1")
	remote := netip.MustParsePrefix("203.0.113.9/32")
	if err := h.outside.Netlink().AddAddr(1, remote); err != nil {
		t.Fatal(err)
	}
	proxyOn(t, h.host, "127.0.0.1:3128")
	h.outside.Route("198.51.100.0/24", "10.66.0.1") // where no host is
	h.file("etc/weir/weir.toml", "interfaces = [\"eth*\"]\n")
	rules := h.file("etc/weir/rules", fwdRules)
	routingRules := func() int {
		out, err := h.host.Command("ip", "rule").CombinedOutput()
		if err != nil {
			t.Fatalf("ip rule: %v: %s", err, out)
		}
		return strings.Count(string(out), "fwmark 0x77656972")
	}
	all := func(when string) {
		t.Helper()
		h.connect(h.server, "tcp", "203.0.113.9:7")
		h.connect(h.outside, "tcp", "10.66.0.1:80")
		h.connect(h.outside, "tcp", "198.51.100.7:80")
		h.exchanged(when)
		if n := routingRules(); n != 1 {
			t.Errorf("%s: %d routing rules", when, n)
		}
	}
	h.start("--rules", rules)
	all("at the start")
	const proxied = "fwd 127.0.0.1,3128 tcp from 10.66.0.2"
	if out := h.weir("fw", "show"); !strings.Contains(out, proxied) {
		t.Errorf("shown as %s", out)
	}
	if out := h.weir("fw", "why", "in via eth1 tcp 10.0.5.9:1000 -> 203.0.113.9:7"); !strings.
		Contains(out, "fwd 10.66.0.2") {
		t.Errorf("explained as %s", out)
	}
	h.kill()
	all("without the agent")
	h.start("--rules", rules)
	all("started again")
	h.weir("fw", "delete", "10")
	if c, err := dialBriefly(h.server, "203.0.113.9:7"); err == nil {
		c.Close()
		t.Error("the remote address is reached without the rule")
	}
	h.weir("fw", "delete", "20")
	if n := routingRules(); n != 0 {
		t.Errorf("%d routing rules are left without the rules", n)
	}
	h.weir("fw", "add", "20", "fwd", "127.0.0.1,3128", "tcp", "from", "any", "to", "any", "in")
	if n := routingRules(); n != 1 {
		t.Errorf("%d routing rules with a new rule", n)
	}
	h.kill()
	h.start("--rules", rules)
	h.weir("down")
	if n := routingRules(); n != 0 {
		t.Errorf("%d routing rules are left after weir down", n)
	}
}

func dialBriefly(n *nstest.Node, to string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	return n.DialContext(ctx, "tcp", to)
}
