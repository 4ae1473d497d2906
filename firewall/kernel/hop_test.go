package kernel

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// uplinks is a host between a client and two uplinks. Its default routes lead to the first, from
// where the remote addresses cannot be reached. The second one has them.
//
//	                            eth1 192.0.2.1 --- first 192.0.2.2
//	client 10.1.0.2 --- eth0 host
//	                            eth2 198.18.0.1 --- second 198.18.0.2, remote 203.0.113.9
//
// and the same with fd00:1::, 2001:db8:1::, 2001:db8:2:: and 2001:db8:9::9.
type uplinks struct {
	*cluster
	client, first, second *nstest.Node
	eth1, eth2            uint32
}

var remotes = []string{"203.0.113.9", "2001:db8:9::9"}

// hopRules send what the client sends by the second uplink.
var hopRules = map[string]string{
	"in": "add fwd 198.18.0.2 ip4 from 10.1.0.2 to not me in via eth0\n" +
		"add fwd 2001:db8:2::2 ip6 from fd00:1::2 to not me in via eth0\n" +
		"add allow ip from any to any\n",
	"out": "add fwd 198.18.0.2 ip4 from 10.1.0.2 to any out via eth1\n" +
		"add fwd 2001:db8:2::2,99 ip6 from fd00:1::2 to any out via eth1\n" +
		"add allow ip from any to any\n",
	"in, states": "add 1 check-state\n" +
		"add fwd 198.18.0.2 ip4 from 10.1.0.2 to not me in via eth0 keep-state\n" +
		"add fwd 2001:db8:2::2 ip6 from fd00:1::2 to not me in via eth0 keep-state\n" +
		"add allow ip from any to any keep-state\n",
	"out, states": "add fwd 198.18.0.2 ip4 from 10.1.0.2 to any out via eth1 keep-state\n" +
		"add fwd 2001:db8:2::2 ip6 from fd00:1::2 to any out via eth1 keep-state\n" +
		"add allow ip from any to any\n",
}

func newUplinks(t *testing.T, rules string) *uplinks {
	lab := nstest.New(t)
	u := &uplinks{cluster: &cluster{t: t, lab: lab, host: lab.Node("host"),
		dir: filepath.Join(nstest.Bpffs(t), "weir")},
		client: lab.Node("client"), first: lab.Node("first"), second: lab.Node("second")}
	lab.Join(u.host, "eth0", "10.1.0.1/24 fd00:1::1/64", u.client, "eth0",
		"10.1.0.2/24 fd00:1::2/64")
	lab.Join(u.host, "eth1", "192.0.2.1/24 2001:db8:1::1/64", u.first, "eth0",
		"192.0.2.2/24 2001:db8:1::2/64")
	lab.Join(u.host, "eth2", "198.18.0.1/24 2001:db8:2::1/64", u.second, "eth0",
		"198.18.0.2/24 2001:db8:2::2/64")
	for _, a := range remotes {
		addr := netip.MustParseAddr(a)
		u.must(u.second.Netlink().AddAddr(loopback, netip.PrefixFrom(addr, addr.BitLen())))
	}
	for _, r := range []struct {
		from     *nstest.Node
		dst, via string
	}{{u.client, "0.0.0.0/0", "10.1.0.1"}, {u.client, "::/0", "fd00:1::1"},
		{u.host, "0.0.0.0/0", "192.0.2.2"}, {u.host, "::/0", "2001:db8:1::2"},
		{u.first, "10.1.0.0/24", "192.0.2.1"}, {u.first, "fd00:1::/64", "2001:db8:1::1"}} {
		r.from.Route(r.dst, r.via)
	}
	u.answer("10.1.0.0/24", "fd00:1::/64")
	for _, g := range gateways {
		u.must(u.host.Netlink().AddAddr(loopback, netip.PrefixFrom(g, g.BitLen())))
	}
	for _, key := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		u.must(u.host.SetSysctl(key, "1"))
	}
	u.open()
	u.addInterface("lo", "127.0.0.1/8 ::1/128 10.88.0.1/32 fd00:88::1/128")
	hooked := []uint32{u.addInterface("eth0", "10.1.0.1/24 fd00:1::1/64")}
	u.eth1 = u.addInterface("eth1", "192.0.2.1/24 2001:db8:1::1/64")
	u.eth2 = u.addInterface("eth2", "198.18.0.1/24 2001:db8:2::1/64")
	u.hop("198.18.0.2", "198.18.0.2", u.eth2, 0)
	u.hop("2001:db8:2::2", "2001:db8:2::2", u.eth2, 0)
	u.must(u.engine.Load(compile(t, rules)))
	for _, index := range append(hooked, u.eth1, u.eth2) {
		u.must(u.host.Do(func() error { _, err := u.engine.Attach(index); return err }))
	}
	t.Cleanup(func() {
		u.must(errors.Join(u.engine.Close(), u.host.Do(func() error { return Remove(u.dir) })))
	})
	u.serve(u.second, 80)
	return u
}

// answer has the remote addresses answer to networks, one of each family.
func (u *uplinks) answer(nets ...string) {
	u.t.Helper()
	for i, via := range []string{"198.18.0.1", "2001:db8:2::1"} {
		u.must(u.second.Netlink().ReplaceRoute(nl.Route{Dst: netip.MustParsePrefix(nets[i]),
			Via: netip.MustParseAddr(via), Src: netip.MustParseAddr(remotes[i])}))
	}
}

func (u *uplinks) hop(to, via string, index, mtu uint32) {
	u.t.Helper()
	u.must(u.engine.SetNextHops([]NextHop{{To: netip.MustParseAddr(to),
		Via: netip.MustParseAddr(via), Interface: index, MTU: mtu}}))
}

func (u *uplinks) load(rules string) {
	u.t.Helper()
	u.must(u.engine.Load(compile(u.t, rules)))
}

// reaches is what the client does with the remote addresses.
func (u *uplinks) reaches(when string) {
	u.t.Helper()
	for _, remote := range remotes {
		to := netip.AddrPortFrom(netip.MustParseAddr(remote), 80).String()
		u.succeed(when+": "+remote, map[string]error{
			"tcp and udp": reach(u.client, to),
			"fragments":   largeDatagrams(u.client, to),
			"icmp":        ping(u.client, remote),
			"large icmp":  ping(u.client, "-s3000", remote),
		})
		c, err := dialFrom(u.client, to, testTimeout)
		u.must(err)
		if err := echoText(c, strings.Repeat("much to say ", 40_000)); err != nil {
			u.t.Errorf("%s: much to %s: %v", when, remote, err)
		}
		c.Close()
	}
}

func largeDatagrams(from *nstest.Node, to string) error {
	c, err := from.DialContext(context.Background(), "udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	return echoWord(c, strings.Repeat("much to say ", 400))
}

// TestFwd: a rule with fwd sends packets to another next hop, on their way in and out, with and
// without states, beside pods or not. Without the rule they do not get there.
func TestFwd(t *testing.T) {
	t.Parallel()
	for name, rules := range hopRules {
		t.Run(name, func(t *testing.T) {
			u := newUplinks(t, rules)
			u.reaches("alone")
			u.settle("a", 2)
			u.reaches("beside a pod")
			u.must(u.engine.Close())
			u.reaches("without the agent")
			u.open()
			u.must(u.engine.SetInterfaces(u.ifs))
			u.load("add count ip from any to any\n" + rules)
			u.reaches("taken over")
			u.load("add allow ip from any to any\n")
			if err := tryExchange(u.client, "203.0.113.9:80"); err == nil {
				t.Error("without the rule the client reaches the second uplink")
			}
		})
	}
}

// TestFirstLoadSetsHops: next hops that are set before the first Load are not in force before it.
func TestFirstLoadSetsHops(t *testing.T) {
	t.Parallel()
	u := newUplinks(t, hopRules["in"])
	u.must(u.engine.Close())
	u.open()
	u.must(u.engine.SetInterfaces(u.ifs))
	u.hop("198.18.0.2", "198.18.0.2", 0, 0) // without a route
	if err := exchange(u.client, "203.0.113.9:80"); err != nil {
		t.Errorf("before the first Load: %v", err)
	}
	u.load(hopRules["in"])
	if err := tryExchange(u.client, "203.0.113.9:80"); err == nil {
		t.Error("the first Load does not set next hops")
	}
}

// TestFwdOfTheHostItself: what the host itself sends goes by another uplink, too.
func TestFwdOfTheHostItself(t *testing.T) {
	t.Parallel()
	u := newUplinks(t, "add fwd 198.18.0.2 ip4 from me to 203.0.113.9 out\n"+
		"add fwd 2001:db8:2::2 ip6 from me to 2001:db8:9::9 out\nadd allow ip from any to any\n")
	u.answer("192.0.2.1/32", "2001:db8:1::1/128")
	for _, to := range []string{"203.0.113.9:80", "[2001:db8:9::9]:80"} {
		if err := reach(u.host, to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// TestFwdSendsNoAnswers: of the packets of a rule's states only those are sent to its next hop that
// go as the one that made the state.
func TestFwdSendsNoAnswers(t *testing.T) {
	t.Parallel()
	u := newUplinks(t, "add fwd 198.18.0.2 tcp from 10.1.0.2 to 192.0.2.2 80 keep-state\n"+
		"add fwd 10.9.9.9 tcp from any to any 81 keep-state\nadd allow ip from any to any\n")
	u.serve(u.client, 81)
	// The next hop of port 81 is the client's own address, which answers are not sent to.
	u.hop("10.9.9.9", "10.1.0.2", u.ifs[1].Index, 0)
	if err := exchange(u.first, "10.1.0.2:81"); err != nil {
		t.Error(err)
	}
}

// TestFwdCannot: what cannot be sent to the next hop is dropped with a reason, and answered where a
// router answers.
func TestFwdCannot(t *testing.T) {
	t.Parallel()
	for name, rules := range hopRules {
		t.Run(name, func(t *testing.T) {
			u := newUplinks(t, rules)
			u.hop("198.18.0.2", "198.18.0.2", 0, 0)
			if err := tryExchange(u.client, "203.0.113.9:80"); err == nil {
				t.Error("a next hop without a route is reached")
			}
			if u.drops(firewall.ReasonNoHop) == 0 {
				t.Error("nothing was dropped for it")
			}
			before := u.drops(firewall.ReasonNoHop)
			u.hop("198.18.0.2", "198.18.0.2", 9999, 0) // an interface that is gone
			if err := tryExchange(u.client, "203.0.113.9:80"); err == nil {
				t.Error("a next hop without an interface is reached")
			}
			if u.drops(firewall.ReasonNoHop) == before {
				t.Error("nothing was dropped for the interface")
			}
			u.hop("198.18.0.2", "198.18.0.2", u.eth2, 1300)
			u.hop("2001:db8:2::2", "2001:db8:2::2", u.eth2, 1300)
			// Its sender gets an error, and makes smaller ones, whatever other errors there are.
			editCPUs(t, u.engine, func(c *weirCpu) { c.AnswerTime = 1 << 61 })
			for _, remote := range remotes {
				to := netip.AddrPortFrom(netip.MustParseAddr(remote), 80).String()
				if err := largeDatagrams(u.client, to); !errors.Is(err, unix.EMSGSIZE) {
					t.Errorf("large fragments to %s: %v", to, err)
				}
			}
			editCPUs(t, u.engine, func(c *weirCpu) { c.AnswerTime = 0 })
			u.reaches("over a small path")
			if n := u.drops(firewall.ReasonHopMTU); n < 2 {
				t.Errorf("%d packets were too large", n)
			}
			if !strings.HasPrefix(name, "in") {
				return
			}
			for _, remote := range remotes {
				out, err := u.client.Command("ping", "-c1", "-W300", "-t1", remote).CombinedOutput()
				if err == nil || !strings.Contains(strings.ToLower(string(out)), "exceeded") {
					t.Errorf("hop limit 1 to %s: %v: %s", remote, err, out)
				}
			}
			if n := u.drops(firewall.ReasonHopTTL); n != 2 {
				t.Errorf("%d packets had no hops left", n)
			}
		})
	}
}

// TestAnswersAreTheirOwn: what an earlier packet left in the scratch of a CPU changes no answer.
func TestAnswersAreTheirOwn(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, "add allow ipv6-icmp from any to any\n"+
		"add unreach port ip4 from any to me in\nadd unreach6 port ip6 from any to me in\n"+
		"add allow ip from any to any out\n")
	for _, to := range []string{"10.0.0.1:9", "[fd00::1]:9"} {
		editCPUs(t, g.engine, func(c *weirCpu) {
			c.Fwd.HopError, c.Fwd.HopMtu, c.Nat.Translated = 1, 1300, 1
		})
		c, err := g.client.DialContext(t.Context(), "udp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("refused")); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := c.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v, want that it is refused", to, err)
		}
	}
}

// TestFwdSources: fwd does not pass on what the stack would not take: forged sources.
func TestFwdSources(t *testing.T) {
	t.Parallel()
	u := newUplinks(t, "add fwd 198.18.0.2 ip4 from any to not me in via eth0\n"+
		"add allow ip from any to any\n")
	u.must(u.host.SetSysctl("net.ipv4.conf.all.rp_filter", "1"))
	for i := range u.ifs {
		u.ifs[i].ReversePath = firewall.ReverseStrict
	}
	u.must(u.engine.SetInterfaces(u.ifs))
	nic := u.host.Link("eth0")
	for _, c := range []struct {
		from   string
		reason firewall.Reason
	}{{"127.0.0.5", firewall.ReasonMartian}, {"192.0.2.77", firewall.ReasonSpoof},
		{"10.1.0.1", firewall.ReasonSpoof}} {
		before := u.drops(c.reason)
		u.must(inject(u.client, [][]byte{frameTo(t, nic.HardwareAddr, netip.MustParseAddr(c.from),
			netip.MustParseAddr("203.0.113.9"), "forged")}))
		nstest.Eventually(t, c.from+" is dropped",
			func() bool { return u.drops(c.reason) > before })
	}
}
