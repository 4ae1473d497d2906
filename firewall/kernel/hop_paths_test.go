package kernel

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// TestFwdOfPods: what pods send goes to another next hop, too, with their own addresses and with
// that of the interface by which it really leaves.
func TestFwdOfPods(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]string{
		"in": "add fwd 198.18.0.2 ip4 from 10.88.0.0/24 to 203.0.113.9 in\n" +
			"add fwd 2001:db8:2::2 ip6 from fd00:88::/64 to 2001:db8:9::9 in\n" +
			"add allow ip from any to any\n",
		"out": "add fwd 198.18.0.2 ip4 from 10.88.0.0/24 to 203.0.113.9 out\n" +
			"add fwd 2001:db8:2::2 ip6 from fd00:88::/64 to 2001:db8:9::9 out\n" +
			"add allow ip from any to any\n",
		"out, states": "add 1 check-state\n" +
			"add fwd 198.18.0.2 ip4 from 10.88.0.0/24 to 203.0.113.9 out keep-state\n" +
			"add fwd 2001:db8:2::2 ip6 from fd00:88::/64 to 2001:db8:9::9 out keep-state\n" +
			"add allow ip from any to any\n",
	} {
		t.Run(name, func(t *testing.T) {
			u := newUplinks(t, rules)
			a := u.settle("a", 2)
			u.answer("10.88.0.0/24", "fd00:88::/64")
			reaches := func(when string) {
				t.Helper()
				for _, remote := range remotes {
					to := netip.AddrPortFrom(netip.MustParseAddr(remote), 80).String()
					if err := reach(a.Node, to); err != nil {
						t.Errorf("%s: %s: %v", when, to, err)
					}
					if err := ping(a.Node, remote); err != nil {
						t.Errorf("%s: %v", when, err)
					}
				}
			}
			reaches("with its own address")
			u.must(u.host.Do(func() error {
				return u.engine.SetMasquerade(forward.Masquerade{Sources: podRanges,
					Ports: []forward.PortRange{{First: 2000, Last: 3000}}})
			}))
			for i, n := range []string{"10.88.0.0/24", "fd00:88::/64"} {
				r := []string{"198.18.0.1", "2001:db8:2::1"}[i]
				out, err := u.second.Command("ip", "route", "del", n, "via", r).CombinedOutput()
				if err != nil {
					t.Fatalf("ip route: %v: %s", err, out)
				}
			}
			if err := exchange(a.Node, "203.0.113.9:80"); err != nil {
				t.Errorf("masqueraded: %v", err)
			}
			if err := exchange(a.Node, "[2001:db8:9::9]:80"); err != nil {
				t.Errorf("masqueraded: %v", err)
			}
		})
	}
}

// TestFwdWithoutHeaders: packets are forwarded from and to interfaces without Ethernet headers.
func TestFwdWithoutHeaders(t *testing.T) {
	t.Parallel()
	u := newUplinks(t, "add fwd 198.18.0.2 udp from any to 203.0.113.9 90 in via tun0\n"+
		"add fwd 10.5.0.2 udp from 10.1.0.2 to 203.0.113.9 91 in via eth0 keep-state\n"+
		"add fwd 198.18.0.2 udp from any to 10.5.0.7 92 out via tun0\n"+
		"add allow ip from any to any\n")
	f, index := tunOf(t, u.host, "tun0", unix.ARPHRD_NONE, "10.5.0.1/24")
	u.addInterface("tun0", "10.5.0.1/24")
	u.must(u.host.Do(func() error { _, err := u.engine.Attach(index); return err }))
	u.hop("10.5.0.2", "10.5.0.2", index, 0)
	u.must(u.second.Netlink().AddAddr(loopback, netip.MustParsePrefix("10.5.0.7/32")))
	received := func(at string) func() {
		c, err := u.second.ListenPacket("udp4", at)
		u.must(err)
		t.Cleanup(func() { c.Close() })
		return func() {
			t.Helper()
			c.SetReadDeadline(time.Now().Add(testTimeout))
			if _, _, err := c.ReadFrom(make([]byte, 100)); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
	fromTun, toTun := received("203.0.113.9:90"), received("10.5.0.7:92")
	_, err := f.Write(enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr("10.5.0.9"),
		Dst: netip.MustParseAddr("203.0.113.9"), TTL: 64}, build.UDP{SrcPort: 1000, DstPort: 90},
		build.Data("in")))
	u.must(err)
	fromTun()
	u.say("203.0.113.9:91")
	if !receivedOn(f, 91, true) {
		t.Error("nothing comes to the tun device")
	}
	u.say("10.5.0.7:92")
	toTun()
}

// TestFwdWithTranslation: a rule with nat that continues translates what a rule with fwd sends by
// another uplink, and so does a setting.
func TestFwdWithTranslation(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]string{
		"setting": "add fwd 198.18.0.2 ip4 from 10.1.0.2 to any out via eth1\n" +
			"add allow ip from any to any\n",
		"setting, in": "add fwd 198.18.0.2 ip4 from 10.1.0.2 to not me in via eth0\n" +
			"add allow ip from any to any\n",
		"rule": "disable one_pass\nnat 2 config if eth2\n" +
			"add nat 2 ip from 10.1.0.2 to any out via eth1\n" +
			"add nat 2 ip from any to 198.18.0.1 in via eth2\n" +
			"add fwd 198.18.0.2 ip4 from 10.1.0.2 to any out via eth1\n" +
			"add allow ip from any to any\n",
	} {
		t.Run(name, func(t *testing.T) {
			u := newUplinks(t, rules)
			l := u.second.Link("eth0")
			routes, err := u.second.Netlink().Routes(0)
			u.must(err)
			for _, r := range routes { // it does not know the client
				if r.Link == l.Index && r.Via == netip.MustParseAddr("198.18.0.1") {
					u.must(u.second.Netlink().DeleteRoute(r))
				}
			}
			m := forward.Masquerade{Ports: []forward.PortRange{{First: 2000, Last: 3000}}}
			if name != "rule" {
				m.Others = []forward.SourceNAT{{Source: netip.MustParsePrefix("10.1.0.0/24")}}
			}
			u.must(u.engine.SetMasquerade(m))
			echo, err := u.second.ListenPacket("udp4", "203.0.113.9:90")
			u.must(err)
			defer echo.Close()
			go echoPackets(echo)
			u.succeed("by the next hop", map[string]error{
				"tcp":  exchange(u.client, "203.0.113.9:80"),
				"udp":  largeDatagrams(u.client, "203.0.113.9:90"),
				"icmp": ping(u.client, "203.0.113.9"),
			})
			u.hop("198.18.0.2", "198.18.0.2", u.eth2, 1300)
			c, err := dialFrom(u.client, "203.0.113.9:80", testTimeout)
			u.must(err)
			defer c.Close()
			if err := echoText(c, strings.Repeat("much to say ", 40_000)); err != nil {
				t.Errorf("over a small path: %v", err)
			}
		})
	}
}

// say has the client send a datagram.
func (u *uplinks) say(to string) {
	u.t.Helper()
	c, err := u.client.DialContext(context.Background(), "udp4", to)
	u.must(err)
	defer c.Close()
	_, err = c.Write([]byte("a word"))
	u.must(err)
}

// TestFwdBack: a packet whose next hop is where it came from goes back with one hop less, and not
// round for ever.
func TestFwdBack(t *testing.T) {
	t.Parallel()
	u := newUplinks(t, "add fwd 10.1.0.2 udp from 10.1.0.2 to 203.0.113.9 in via eth0\n"+
		"add allow ip from any to any\n")
	u.hop("10.1.0.2", "10.1.0.2", u.ifs[1].Index, 0)
	u.must(u.client.SetSysctl("net.ipv4.ip_forward", "1"))
	u.must(u.client.SetSysctl("net.ipv4.conf.all.accept_local", "1"))
	u.must(u.client.SetSysctl("net.ipv4.conf.all.rp_filter", "0"))
	u.must(u.client.SetSysctl("net.ipv4.conf.eth0.rp_filter", "0"))
	u.say("203.0.113.9:93")
	// It begins with 64 hops, and both ends take one.
	nstest.Eventually(t, "the packet comes until it ends",
		func() bool { return u.count(100) == 32 })
	u.must(ping(u.client, "10.1.0.1"))
	if n := u.count(100); n != 32 {
		t.Errorf("the packet came %d times", n)
	}
}

// count returns how many packets the rule of a number has matched.
func (u *uplinks) count(number uint16) (n uint64) {
	u.t.Helper()
	all, err := u.engine.Rules()
	u.must(err)
	for _, r := range all {
		if r.Number == number {
			n += r.Packets
		}
	}
	return n
}
