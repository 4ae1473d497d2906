package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// cluster is a host with two pods, and an outside host on the other side of its NIC:
//
//	a 10.88.0.2 --+
//	              host 192.0.2.1 --- eth0 --- outside 192.0.2.2
//	b 10.88.0.3 --+
//
// and the same with fd00:88:: and 2001:db8::. The outside has a route to the pods' range, so that
// it can be tried whether the rules, and not a missing route, keep it out.
type cluster struct {
	t             testing.TB
	lab           *nstest.Lab
	host, outside *nstest.Node
	a, b          *podNode
	dir           string
	engine        *Engine
	ifs           []firewall.Interface
	netkit        bool // the pods have netkits, not veths
}

type podNode struct {
	*nstest.Node
	endpoint forward.Endpoint
}

const openRules = "add 1 check-state\nadd allow ip from any to any keep-state\n"

var (
	podRanges = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24"),
		netip.MustParsePrefix("fd00:88::/64")}
	gateways = []netip.Addr{netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("fd00:88::1")}
)

// newCluster makes one whose pods have veths; with WEIR_LINK=netkit netkits, which the kernel must
// have then.
func newCluster(t testing.TB, rules string) *cluster {
	return newClusterOf(t, rules, os.Getenv("WEIR_LINK") == "netkit")
}

func newClusterOf(t testing.TB, rules string, netkit bool) *cluster {
	lab := nstest.New(t)
	v := &cluster{t: t, netkit: netkit, lab: lab, host: lab.Node("host"),
		outside: lab.Node("outside"), dir: filepath.Join(nstest.Bpffs(t), "weir")}
	lab.Join(v.host, "eth0", "192.0.2.1/24 2001:db8::1/64", v.outside, "eth0",
		"192.0.2.2/24 2001:db8::2/64")
	for _, key := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		v.must(v.host.SetSysctl(key, "1"))
	}
	for i, g := range gateways {
		v.must(v.host.Netlink().AddAddr(loopback, netip.PrefixFrom(g, g.BitLen())))
		v.must(v.outside.AddRoute(podRanges[i],
			netip.MustParseAddr([]string{"192.0.2.1", "2001:db8::1"}[i])))
	}
	v.open()
	v.addInterface("lo", "10.88.0.1/32 fd00:88::1/128 127.0.0.1/8 ::1/128")
	nic := v.addInterface("eth0", "192.0.2.1/24 2001:db8::1/64")
	v.must(v.engine.Load(compile(t, rules)))
	v.must(v.host.Do(func() error { _, err := v.engine.Attach(nic); return err }))
	t.Cleanup(func() {
		v.must(errors.Join(v.engine.Close(), v.host.Do(func() error { return Remove(v.dir) })))
	})
	v.a, v.b = v.settle("a", 2), v.settle("b", 3)
	return v
}

func (v *cluster) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// succeed wants everything that was tried to have succeeded.
func (v *cluster) succeed(when string, tried map[string]error) {
	v.t.Helper()
	for what, err := range tried {
		if err != nil {
			v.t.Errorf("%s: %s: %v", when, what, err)
		}
	}
}

func (v *cluster) open() {
	v.t.Helper()
	v.must(v.host.Do(func() (err error) {
		v.engine, err = openShared(v.t, Config{Dir: v.dir, Options: firewall.DefaultOptions()})
		return err
	}))
}

// addInterface gives the engine one more interface.
func (v *cluster) addInterface(name, addrs string) uint32 {
	v.t.Helper()
	l := v.host.Link(name)
	prefixes, err := nstest.Prefixes(addrs)
	v.must(err)
	v.ifs = append(v.ifs, firewall.Interface{Index: uint32(l.Index), Name: name, Addrs: prefixes})
	v.must(v.engine.SetInterfaces(v.ifs))
	return uint32(l.Index)
}

// settle makes a pod, as package pod does.
func (v *cluster) settle(name string, number byte) *podNode {
	v.t.Helper()
	r := &podNode{Node: v.lab.Node(name)}
	e := &r.endpoint
	e.Name, e.MTU = "pod:"+name, 1500
	e.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 88, 0, number}),
		netip.MustParseAddr(fmt.Sprintf("fd00:88::%d", number))}
	e.MAC, e.HostMAC = [6]byte{2, 0, 0, 0, 1, number}, [6]byte{2, 0, 0, 0, 2, number}
	conn, inner := v.host.Netlink(), r.Netlink()
	add := conn.AddVeth
	if e.Netkit = v.netkit; v.netkit {
		add = conn.AddNetkit
	}
	v.must(add(nl.Veth{
		Name: "pod" + name, PeerName: "eth0", PeerNS: r.NS(),
		HardwareAddr: net.HardwareAddr(e.HostMAC[:]), PeerHardwareAddr: net.HardwareAddr(e.MAC[:]),
	}))
	outer, err := conn.LinkByName("pod" + name)
	v.must(err)
	eth0, err := inner.LinkByName("eth0")
	v.must(err)
	v.must(r.SetSysctl("net.ipv6.conf.eth0.dad_transmits", "0"))
	v.must(conn.SetLinkUp(outer.Index))
	v.must(inner.SetLinkUp(eth0.Index))
	v.must(v.host.SetSysctl("net.ipv4.conf.pod"+name+".rp_filter", "0"))
	for i, a := range e.Addrs {
		g := gateways[i]
		v.must(inner.AddAddr(eth0.Index, netip.PrefixFrom(a, a.BitLen())))
		v.must(inner.SetNeigh(nl.Neigh{Link: eth0.Index, Addr: g,
			HardwareAddr: net.HardwareAddr(e.HostMAC[:])}))
		v.must(inner.ReplaceRoute(nl.Route{Dst: netip.PrefixFrom(g, g.BitLen()), Link: eth0.Index,
			Scope: nl.ScopeLink}))
		v.must(
			inner.ReplaceRoute(
				nl.Route{
					Dst: netip.PrefixFrom(
						[]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}[i],
						0,
					),
					Via:  g,
					Link: eth0.Index,
				},
			),
		)
		v.must(conn.SetNeigh(nl.Neigh{Link: outer.Index, Addr: a,
			HardwareAddr: net.HardwareAddr(e.MAC[:])}))
		v.must(conn.ReplaceRoute(nl.Route{Dst: netip.PrefixFrom(a, a.BitLen()), Link: outer.Index,
			Src: g}))
	}
	v.awaitCarrier(conn, "pod"+name)
	v.awaitCarrier(inner, "eth0")
	e.Index = uint32(outer.Index)
	v.ifs = append(v.ifs, firewall.Interface{Index: e.Index, Name: e.Name})
	v.must(v.engine.SetInterfaces(v.ifs))
	v.must(v.host.Do(func() error { return v.engine.SetEndpoint(*e) }))
	return r
}

// awaitCarrier waits until a link sends: up to then the kernel throws away what is sent.
func (v *cluster) awaitCarrier(conn *nl.Conn, name string) {
	v.t.Helper()
	nstest.Eventually(v.t, name+" comes up", func() bool {
		l, err := conn.LinkByName(name)
		v.must(err)
		return l.Running
	})
}

// serve echoes TCP and UDP on a port of a node, for both families.
func (v *cluster) serve(n *nstest.Node, port int) {
	v.t.Helper()
	l, err := n.Listen("tcp", fmt.Sprintf("[::]:%d", port))
	v.must(err)
	v.t.Cleanup(func() { l.Close() })
	go nstest.Echo(l)
	for _, family := range []string{"udp4", "udp6"} {
		c, err := n.ListenPacket(family, fmt.Sprintf(":%d", port))
		v.must(err)
		v.t.Cleanup(func() { c.Close() })
		go echoPackets(c)
	}
}

func echoPackets(c net.PacketConn) {
	b := make([]byte, 65536)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		c.WriteTo(b[:n], from)
	}
}

// exchange talks to an address over TCP.
func exchange(n *nstest.Node, to string) error { return exchangeFor(n, to, testTimeout) }

// tryExchange talks to an address over TCP that should not answer.
func tryExchange(n *nstest.Node, to string) error { return exchangeFor(n, to, shortWait) }

func exchangeFor(n *nstest.Node, to string, most time.Duration) error {
	c, err := dialFrom(n, to, most)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := echoWord(c, "over tcp"); err != nil {
		return fmt.Errorf("tcp %s: %w", to, err)
	}
	return nil
}

// reach talks to an address over TCP and UDP.
func reach(n *nstest.Node, to string) error {
	if err := exchange(n, to); err != nil {
		return err
	}
	u, err := n.DialContext(context.Background(), "udp", to)
	if err != nil {
		return err
	}
	defer u.Close()
	if err := echoWord(u, "over udp"); err != nil {
		return fmt.Errorf("udp %s: %w", to, err)
	}
	return nil
}

func ping(n *nstest.Node, args ...string) error {
	out, err := n.Command("ping", append([]string{"-c1", "-W300"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ping %v: %w: %s", args, err, out)
	}
	return nil
}

func (v *cluster) counters(r *podNode) forward.EndpointCounters {
	v.t.Helper()
	all, err := v.engine.Endpoints()
	v.must(err)
	for _, c := range all {
		if c.Index == r.endpoint.Index {
			return c
		}
	}
	v.t.Fatalf("no counters of %s", r.endpoint.Name)
	return forward.EndpointCounters{}
}

func (v *cluster) drops(r firewall.Reason) uint64 {
	v.t.Helper()
	all, err := v.engine.Decisions()
	v.must(err)
	return firewall.ByReason(all)[r]
}

// hostSent returns how many packets the host end of a pod has sent by the stack: the fast path does
// not count there.
func (v *cluster) hostSent(r *podNode) uint64 { return v.hostCount(r, 10) }

// hostCount returns a column of /proc/net/dev.
func (v *cluster) hostCount(r *podNode, column int) (n uint64) {
	v.t.Helper()
	out, err := v.host.Command("cat", "/proc/self/net/dev").Output()
	v.must(err)
	for line := range strings.SplitSeq(string(out), "\n") {
		if f := strings.Fields(line); len(f) > 10 && f[0] == "pod"+r.String()+":" {
			_, err = fmt.Sscan(f[column], &n)
			v.must(err)
		}
	}
	return n
}

// echoText sends a long text and wants it back, both at once.
func echoText(c net.Conn, text string) error {
	c.SetDeadline(time.Now().Add(testTimeout))
	sent := make(chan error, 1)
	go func() { _, err := io.WriteString(c, text); sent <- err }()
	b := make([]byte, len(text))
	_, err := io.ReadFull(c, b)
	if err == nil && string(b) != text {
		err = errors.New("it came back changed")
	}
	return errors.Join(err, <-sent)
}
