//go:build wireguard

package test

import (
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// tunnelChange is two hosts with a tunnel of the kernel, of which the left one's default route
// leads elsewhere, and a pod that is called all the time.
type tunnelChange struct {
	*hosts
	client *nstest.Node
	web    netip.Addr
	clear  *atomic.Uint64
}

func newTunnelChange(t *testing.T) *tunnelChange {
	t.Helper()
	rules := "add deny tcp from any to any 81 via weir0\n" + allowAll
	h := newHostsWith(t, [2]string{byKernel, byUser}, rules, rules)
	elsewhere := h.left.lab.Node("elsewhere")
	h.left.lab.Join(h.left.host, "eth1", "10.67.0.1/24", elsewhere, "eth0", "10.67.0.2/24")
	h.left.host.Route("0.0.0.0/0", "10.67.0.2")
	c := &tunnelChange{hosts: h,
		clear: clearCount(t, elsewhere, "eth0", netip.MustParsePrefix("10.88.2.0/24"))}
	h.meet()
	web, webPod := h.right.attach("web")
	echoes(t, web, 80, 81)
	c.client, _ = h.left.attach("client")
	c.web = webPod.Addrs[0]
	for _, from := range []*nstest.Node{h.left.host, c.client} {
		c.sendAlways(t, from)
	}
	return c
}

// sendAlways sends to the pod until the end of the test.
func (c *tunnelChange) sendAlways(t *testing.T, from *nstest.Node) {
	t.Helper()
	s, err := from.ListenPacket("udp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.web, 9))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				s.WriteTo([]byte("in the clear?"), to) // it may be unreachable just now
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended; s.Close() })
}

// holds checks that nothing has left in the clear, and that the rules are in force.
func (c *tunnelChange) holds(t *testing.T, after string) {
	t.Helper()
	answers(t, c.client, c.web, 80)
	silent(t, c.client, c.web, 81)
	if n := c.clear.Load(); n > 0 {
		t.Errorf("%s: %d packets left in the clear", after, n)
	}
}

func (c *tunnelChange) index(t *testing.T, kind string) int {
	t.Helper()
	var l nl.Link
	nstest.Eventually(t, "the tunnel is of type "+kind, func() (there bool) {
		var err error
		l, err = c.left.tunnelLink()
		return err == nil && l.Kind == kind
	})
	return l.Index
}

// TestKernelTunnelStays: the agent is killed, and the tunnel works on with its rules; the next one
// takes it over with its connections. What was changed in between is corrected.
func TestKernelTunnelStays(t *testing.T) {
	c := newTunnelChange(t)
	c.holds(t, "at first")
	index := c.index(t, "wireguard")
	open := answers(t, c.client, c.web, 80)
	for _, end := range []func(){c.left.kill, c.left.stop} {
		end()
		talk(t, open, "without an agent")
		c.holds(t, "without an agent")
		// a route that no record knows
		mustRun(t, c.left.host.Command("ip", "route", "add", "10.88.7.0/24", "dev", "weir0"))
		c.left.start("--rules", c.left.root+"/etc/weir/rules")
		c.left.wantsTunnel(t, "kernel")
		talk(t, open, "with the next one")
		c.holds(t, "with the next one")
		if now := c.index(t, "wireguard"); now != index {
			t.Errorf("the interface %d was made again: %d", index, now)
		}
		if out, err := c.left.host.Command("ip", "route", "show",
			"10.88.7.0/24").Output(); err != nil || len(out) > 0 {
			t.Errorf("a route that no peer has stays: %s, %v", out, err)
		}
	}
}

// TestKernelTunnelChanges: the interface is deleted under the agent, the back end changes and
// changes back, and the interface of another program has the name. Nothing leaves in the clear, and
// nothing is left behind.
func TestKernelTunnelChanges(t *testing.T) {
	c := newTunnelChange(t)
	c.holds(t, "at first")
	index := c.index(t, "wireguard")
	mustRun(t, c.left.host.Command("ip", "link", "delete", "weir0"))
	nstest.Eventually(t, "the interface is made again", func() bool {
		l, err := c.left.tunnelLink()
		return err == nil && l.Index != index
	})
	c.holds(t, "deleted")
	settings := "[pods]\nranges = [\"10.88.1.0/24\", \"fd00:88:1::/120\"]\n[overlay]\n"
	for i, one := range []struct{ backend, kind, name string }{{byUser, "tuntap", "user"},
		{byKernel, "wireguard", "kernel"}, {byUser, "tuntap", "user"},
		{"backend = \"auto\"\n", "wireguard", "kernel"}} {
		if i%2 == 0 {
			c.left.kill()
		} else {
			c.left.stop()
		}
		c.left.file("etc/weir/weir.toml", settings+one.backend)
		c.left.start("--rules", c.left.root+"/etc/weir/rules")
		c.left.wantsTunnel(t, one.name)
		c.index(t, one.kind)
		c.holds(t, one.backend)
	}
	c.left.kill()
	c.left.weir("down", "--keep")
	links, err := c.left.host.Netlink().Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Kind == nl.WireGuardKind {
			t.Errorf("weir down leaves %+v", l)
		}
	}
	mustRun(t, c.left.host.Command("ip", "link", "add", "weir0", "type", "wireguard"))
	mustRun(t, c.left.host.Command("ip", "link", "set", "weir0", "alias", "another's"))
	c.left.start("--rules", c.left.root+"/etc/weir/rules")
	if out, _, _ := c.left.try("status"); !strings.Contains(out, "ip link show weir0") {
		t.Errorf("the status with another program's interface:\n%s", out)
	}
	if l, err := c.left.tunnelLink(); err != nil || l.Alias != "another's" {
		t.Errorf("another program's interface is %+v, %v", l, err)
	}
}

// TestKernelTunnelFailover: the path in use dies silently, in the middle of an exchange, and
// that continues over the other one. At the first handshake, the first endpoint may be dead.
func TestKernelTunnelFailover(t *testing.T) {
	h := newHostsWith(t, [2]string{byKernel, byKernel}, allowAll, allowAll)
	middle := h.left.lab.Node("middle")
	h.left.lab.Join(h.left.host, "eth1", "10.67.1.1/24", middle, "eth0", "10.67.1.2/24")
	h.left.lab.Join(h.right.host, "eth1", "10.67.2.1/24", middle, "eth1", "10.67.2.2/24")
	h.left.host.Route("10.67.2.0/24", "10.67.1.2")
	h.right.host.Route("10.67.1.0/24", "10.67.2.2")
	middle.Sysctl("net.ipv4.ip_forward", "1")
	left, right := h.keys()
	h.left.weir("peer", "add", "right", "--key", right, "--endpoint",
		"10.67.2.99:51820,10.67.2.1:51820,10.66.0.2:51820", "--pods", "10.88.2.0/24")
	h.right.weir("peer", "add", "left", "--key", left, "--endpoint",
		"10.67.1.1:51820,10.66.0.1:51820", "--pods", "10.88.1.0/24")
	web, webPod := h.right.attach("web")
	echoes(t, web, 80)
	client, _ := h.left.attach("client")
	began := time.Now()
	c := answers(t, client, webPod.Addrs[0], 80) // no host has the first endpoint
	t.Logf("with a dead first endpoint a connection takes %v", time.Since(began))
	nstest.Eventually(t, "the path over the router is in use", func() bool {
		talk(t, c, "which way?")
		if h.left.peers().Peers[0].Path == "10.67.2.1:51820" {
			return true
		}
		// make the other one fail by taking the address away for a moment
		mustRun(t, h.right.host.Command("ip", "link", "set", "eth0", "down"))
		talk(t, c, "over the router")
		mustRun(t, h.right.host.Command("ip", "link", "set", "eth0", "up"))
		return false
	})
	// TCP of the first connection has measured the handshake, and would wait as long
	c = answers(t, client, webPod.Addrs[0], 80)
	for range 20 {
		talk(t, c, "how long does it take?")
	}
	middle.Sysctl("net.ipv4.ip_forward", "0")
	began = time.Now()
	talk(t, c, "the other way")
	t.Logf("the path died: the pause was %v", time.Since(began))
	p := h.left.peers().Peers[0]
	if p.Path != "10.66.0.2:51820" || p.Moves == 0 {
		t.Errorf("after the path died: %+v", p)
	}
}
