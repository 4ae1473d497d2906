package kernel

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// takeMarked has the host take marked packets for its own, as the agent does.
func (u *uplinks) takeMarked() {
	u.t.Helper()
	conn := u.host.Netlink()
	for _, six := range []bool{false, true} {
		r := nl.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Link: loopback,
			Scope: nl.Scope(unix.RT_SCOPE_HOST), Table: 77, Type: unix.RTN_LOCAL}
		if six {
			r.Dst, r.Scope = netip.PrefixFrom(netip.IPv6Unspecified(), 0), nl.ScopeGlobal
		}
		u.must(conn.ReplaceRoute(r))
		u.must(conn.AddMarkRule(FwdMark, 77, six))
	}
}

// proxy listens on the host with sockets that may speak in the name of others, and says to each
// client at which address it was called.
func (u *uplinks) proxy(addr string) net.Listener {
	u.t.Helper()
	control := func(network, _ string, c syscall.RawConn) (err error) {
		level, option := unix.SOL_IP, unix.IP_TRANSPARENT
		if network == "tcp6" {
			level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
		}
		c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) })
		return err
	}
	transparent := net.ListenConfig{Control: control}
	var l net.Listener
	u.must(u.host.Do(func() (err error) {
		l, err = transparent.Listen(context.Background(), "tcp", addr)
		return err
	}))
	u.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte(c.LocalAddr().String() + "\n"))
			go echoAll(c)
		}
	}()
	return l
}

func echoAll(c net.Conn) {
	defer c.Close()
	b := make([]byte, 65536)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

// called dials as the client, and returns at which address the proxy was called.
func (u *uplinks) called(to string) (net.Conn, string) {
	u.t.Helper()
	c, err := dialFrom(u.client, to, testTimeout)
	u.must(err)
	u.t.Cleanup(func() { c.Close() })
	var line []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(line), "\n"); line = append(line, b[0]) {
		if _, err := c.Read(b); err != nil {
			u.t.Fatal(err)
		}
	}
	return c, strings.TrimSpace(string(line))
}

var proxyRules = map[string]string{
	"stateless": "add fwd 127.0.0.1,3128 tcp from 10.1.0.0/24 to any 80 in via eth0\n" +
		"add fwd ::1,3128 tcp from fd00:1::/64 to any 80 in via eth0\n" +
		"add allow ip from any to any\n",
	"states": "add check-state\n" +
		"add fwd 127.0.0.1,3128 tcp from 10.1.0.0/24 to any 80 in via eth0 setup keep-state\n" +
		"add fwd ::1,3128 tcp from fd00:1::/64 to any 80 in via eth0 setup keep-state\n" +
		"add deny tcp from any to any\nadd allow ip from any to any\n",
}

// TestFwdToAProxy: what clients send to port 80 of any address reaches the socket that listens at
// the next hop, which speaks in the name of that address. It does so through a load, a restart of
// the agent, and without it. Without the rule new connections do not get there.
func TestFwdToAProxy(t *testing.T) {
	t.Parallel()
	for name, rules := range proxyRules {
		t.Run(name, func(t *testing.T) {
			u := newUplinks(t, rules)
			u.takeMarked()
			u.proxy("127.0.0.1:3128")
			u.proxy("[::1]:3128")
			var open []net.Conn
			each := func(when string) {
				t.Helper()
				for _, c := range open {
					if err := echoText(c, strings.Repeat(when, 1000)); err != nil {
						t.Errorf("%s: %v", when, err)
					}
				}
				for _, to := range []string{"203.0.113.9:80", "10.1.0.1:80", "[2001:db8:9::9]:80",
					"[fd00:1::1]:80"} {
					c, at := u.called(to)
					if at != to {
						t.Errorf("%s: called %s, seen as %s", when, to, at)
					}
					open = append(open, c)
				}
			}
			each("alone")
			u.settle("a", 2)
			each("beside a pod")
			u.must(u.engine.Close())
			each("without the agent")
			u.open()
			u.must(u.engine.SetInterfaces(u.ifs))
			u.load(rules + "add 65000 count ip from any to any\n")
			each("taken over")
			u.load("add allow ip from any to any\n")
			if err := tryExchange(u.client, "10.1.0.1:80"); err == nil {
				t.Error("without the rule the proxy answers")
			}
		})
	}
}

// TestFwdToNoSocket: where no socket listens, and where packets cannot be for one, they are
// dropped; so they are while the host does not take them for its own.
func TestFwdToNoSocket(t *testing.T) {
	t.Parallel()
	u := newUplinks(t, proxyRules["stateless"]+
		"add 10 fwd 127.0.0.1,53 udp from 10.1.0.2 to any 53 in\n"+
		"add 11 fwd 127.0.0.1 icmp from 10.1.0.2 to 203.0.113.9 in\n"+
		"add 12 fwd 127.0.0.1,3128 tcp from any to 10.1.0.2 81 out\n")
	for _, to := range []string{"203.0.113.9:80", "[2001:db8:9::9]:80", "10.1.0.1:80"} {
		before := u.drops(firewall.ReasonNoSocket)
		if err := tryExchange(u.client, to); err == nil {
			t.Errorf("%s answers", to)
		}
		if u.drops(firewall.ReasonNoSocket) == before {
			t.Errorf("%s: nothing was dropped for it", to)
		}
	}
	before := u.drops(firewall.ReasonNoSocket)
	if err := u.client.Command("ping", "-c1", "-W1", "203.0.113.9").Run(); err == nil {
		t.Error("an echo request is answered")
	}
	if u.drops(firewall.ReasonNoSocket) == before {
		t.Error("no echo request was dropped")
	}
	if err := tryExchange(u.host, "10.1.0.2:81"); err == nil ||
		u.drops(firewall.ReasonNoHop) == 0 {
		t.Errorf("what leaves does not go to a socket: %v", err)
	}
	u.proxy("127.0.0.1:3128")
	if err := tryExchange(u.client, "203.0.113.9:80"); err == nil {
		t.Error("a proxy is reached without the routing rule")
	}
}

// TestFwdDatagrams: datagrams to port 53 of any address reach a socket of the host.
func TestFwdDatagrams(t *testing.T) {
	t.Parallel()
	u := newUplinks(t, "add fwd 10.1.0.1,5300 udp from 10.1.0.2 to any 53 in\n"+
		"add allow ip from any to any\n")
	u.takeMarked()
	s, err := u.host.ListenPacket("udp4", "10.1.0.1:5300")
	u.must(err)
	defer s.Close()
	c, err := u.client.ListenPacket("udp4", "10.1.0.2:0")
	u.must(err)
	defer c.Close()
	for _, to := range []string{"203.0.113.9:53", "10.1.0.1:53"} {
		_, err := c.WriteTo([]byte(to), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
		u.must(err)
		b := make([]byte, 100)
		n, from, err := s.ReadFrom(b)
		u.must(err)
		if string(b[:n]) != to || from.String() != c.LocalAddr().String() {
			t.Errorf("%q from %s", b[:n], from)
		}
	}
	before := u.drops(firewall.ReasonNoSocket)
	large := make([]byte, 4000)
	_, err = c.WriteTo(large, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("203.0.113.9:53")))
	u.must(err)
	nstest.Eventually(t, "fragments are dropped",
		func() bool { return u.drops(firewall.ReasonNoSocket) >= before+3 })
}
