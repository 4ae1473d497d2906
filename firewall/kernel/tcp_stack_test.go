package kernel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// The tests of this file send real TCP through the engine in rare patterns.

const setupRules = "add 1 check-state\nadd allow tcp from any to any setup keep-state\n"

// pass makes time pass for the states, by making them older.
func (g *pairLab) pass(t *testing.T, d time.Duration) {
	t.Helper()
	states, err := g.engine.objects.States.Memory()
	if err != nil {
		t.Fatal(err)
	}
	var s weirSet
	for x, err := range g.engine.entries() {
		if err != nil {
			t.Fatal(err)
		}
		set, way := int64(x.place)/ways, x.place%ways
		for i := range x.sides {
			last := x.sides[i].Last - int64(d)
			at := set*int64(unsafe.Sizeof(s)) + int64(unsafe.Offsetof(s.Side)) +
				int64(2*int(way)+i)*int64(unsafe.Sizeof(s.Side[0]))
			if _, err := states.WriteAt(bytesOf([]uint64{uint64(last)}), at+
				int64(unsafe.Offsetof(s.Side[0].Last))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// pair dials from the client and returns both ends.
func (g *pairLab) pair(t *testing.T, host string, port int) (client, server *net.TCPConn) {
	t.Helper()
	address := net.JoinHostPort(host, fmt.Sprint(port))
	l, err := g.server.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := g.dial(address)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// sendWord sends a word from one end and expects it at the other.
func sendWord(from, to net.Conn, word string) error {
	return sendWordFor(from, to, word, testTimeout)
}

// sendWordFor does so for some time at most.
func sendWordFor(from, to net.Conn, word string, most time.Duration) error {
	if _, err := from.Write([]byte(word)); err != nil {
		return err
	}
	to.SetReadDeadline(time.Now().Add(most))
	b := make([]byte, len(word))
	if _, err := io.ReadFull(to, b); err != nil {
		return err
	}
	if string(b) != word {
		return fmt.Errorf("sent %q, received %q", word, b)
	}
	return nil
}

// noSuspectSegments fails the test if the engine found anything wrong with a segment.
func (g *pairLab) noSuspectSegments(t *testing.T) {
	t.Helper()
	all, err := g.engine.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	drops := firewall.ByReason(all)
	for _, r := range []firewall.Reason{firewall.ReasonTCPFlags, firewall.ReasonTCPRst,
		firewall.ReasonTCPAck, firewall.ReasonTCPWindow} {
		if drops[r] > 0 {
			t.Errorf("%d packets dropped for %v", drops[r], r)
		}
	}
}

// only returns the one state that there is.
func (g *pairLab) only(t *testing.T) firewall.State {
	t.Helper()
	all := g.states(t)
	if len(all) != 1 {
		t.Fatalf("%d states: %+v", len(all), all)
	}
	return all[0]
}

// forget ends all states.
func (g *pairLab) forget(t *testing.T) {
	t.Helper()
	if _, err := g.engine.DeleteStates(func(firewall.State) bool { return true }); err != nil {
		t.Fatal(err)
	}
}

func (g *pairLab) left(t *testing.T) time.Duration {
	t.Helper()
	return g.only(t).Deadline - time.Duration(g.engine.now())
}

// TestHalfCloseForAnHour: the client is done, the server says a word every four minutes.
func TestHalfCloseForAnHour(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, setupRules)
	for _, host := range []string{"10.0.0.1", "fd00::1"} {
		c, s := g.pair(t, host, 90)
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Fatalf("the server read %d bytes: %v", n, err)
		}
		for minute := 0; minute < 60; minute += 4 {
			g.pass(t, 4*time.Minute)
			if err := sendWord(s, c, "still at it"); err != nil {
				t.Fatalf("%s: after %d minutes: %v", host, minute+4, err)
			}
		}
		s.Close()
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: the client read %d bytes: %v", host, n, err)
		}
		nstest.Eventually(t, "the state is closed", func() bool {
			all := g.states(t)
			return len(all) == 0 || all[0].Phase.String() == "closed"
		})
		g.forget(t)
	}
	g.noSuspectSegments(t)
}

// TestSilentHalfClose: the same, but the server says nothing meanwhile. The probes keep the state
// alive.
func TestSilentHalfClose(t *testing.T) {
	t.Parallel()
	halfCloseSilently(t, 10*time.Minute)
}

// TestLongSilentHalfClose does it for an hour.
func TestLongSilentHalfClose(t *testing.T) {
	t.Parallel()
	halfCloseSilently(t, time.Hour)
}

// halfCloseSilently leaves a connection half closed for so long.
func halfCloseSilently(t *testing.T, long time.Duration) {
	t.Helper()
	g := newPairLab(t, setupRules)
	stop := g.watch(t, firewall.EventDrop)
	defer stop()
	c, s := g.pair(t, "10.0.0.1", 90)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
	life := g.engine.options.Timeouts.Established
	for passed := time.Duration(0); passed < long; {
		idle := g.left(t) - 14800*time.Millisecond // the next probe is due with 15 s left
		g.pass(t, idle)
		passed += idle
		nstest.Eventually(t, fmt.Sprintf("a probe is answered after %v", passed), func() bool {
			return g.left(t) > life-5*time.Second
		})
	}
	if err := sendWord(s, c, "here it is"); err != nil {
		t.Error(err)
	}
	g.noSuspectSegments(t)
}

// TestTimePasses: without probes or words the same state ends, or the two tests above would prove
// nothing.
func TestTimePasses(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, setupRules)
	c, s := g.pair(t, "10.0.0.1", 90)
	g.pass(t, g.engine.options.Timeouts.Established+time.Second)
	if all := g.states(t); len(all) != 0 {
		t.Errorf("states: %+v", all)
	}
	if err := sendWordFor(s, c, "too late", shortWait); err == nil {
		t.Error("a word came through after the state had expired")
	}
}

// TestSlowStartAfterIdle: the congestion window shrinks while nothing is sent, and grows again
// through the same state.
func TestSlowStartAfterIdle(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	big := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	for _, host := range []string{"10.0.0.1", "[fd00::1]"} {
		c, err := g.dial(host + ":80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 3 {
			if err := echoText(c, big); err != nil {
				t.Fatalf("%s: %v", host, err)
			}
			// more than a retransmission timeout, after which tcp_slow_start_after_idle applies
			time.Sleep(700 * time.Millisecond)
			g.pass(t, 290*time.Second)
		}
	}
	g.noSuspectSegments(t)
}

// caller is one end of a simultaneous open.
type caller struct {
	node *nstest.Node
	own  netip.Addr
	conn net.Conn
	done chan error
}

// call dials peer from the port that it dials.
func (c *caller) call(peer netip.Addr, port uint16) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.own, port)),
		Timeout: testTimeout}
	c.done <- c.node.Do(func() (err error) {
		c.conn, err = d.Dial("tcp", netip.AddrPortFrom(peer, port).String())
		return err
	})
}

// TestSimultaneousOpen has both ends call each other from the ports that they call. The SYNs cross
// because each waits in its own host for the neighbour's link address, for which only a daemon that
// is not there is asked.
func TestSimultaneousOpen(t *testing.T) {
	g := newPairLab(t, setupRules)
	ip := func(n *nstest.Node, args ...string) string {
		out, _ := n.Command("ip", args...).CombinedOutput()
		return string(out)
	}
	for _, n := range []*nstest.Node{g.client, g.server} {
		for _, family := range []string{"ipv4", "ipv6"} {
			n.Sysctl("net."+family+".neigh.eth0.app_solicit", "100")
			n.Sysctl("net."+family+".neigh.eth0.ucast_solicit", "0")
			n.Sysctl("net."+family+".neigh.eth0.mcast_solicit", "0")
		}
	}
	for round, addrs := range [][2]string{{"10.0.0.2", "10.0.0.1"}, {"fd00::2", "fd00::1"},
		{"10.0.0.2", "10.0.0.1"}, {"fd00::2", "fd00::1"}} {
		port := uint16(7000 + round)
		ends := [2]*caller{{node: g.client}, {node: g.server}}
		for i, c := range ends {
			c.own, c.done = netip.MustParseAddr(addrs[i]), make(chan error, 1)
			ip(c.node, "neigh", "del", addrs[1-i], "dev", "eth0") // there may be none
		}
		for i, c := range ends {
			go c.call(netip.MustParseAddr(addrs[1-i]), port)
		}
		for i, c := range ends {
			nstest.Eventually(t, "the SYN waits for the neighbour", func() bool {
				return strings.Contains(ip(c.node, "neigh", "show", addrs[1-i], "dev", "eth0"),
					"INCOMPLETE")
			})
		}
		for i, c := range ends {
			peer := ends[1-i].node.Link("eth0")
			ip(c.node, "neigh", "replace", addrs[1-i], "lladdr", peer.HardwareAddr.String(), "nud",
				"permanent", "dev", "eth0")
		}
		for _, c := range ends {
			if err := <-c.done; err != nil {
				t.Fatalf("%v: %v", addrs, err)
			}
		}
		if err := errors.Join(sendWord(ends[0].conn, ends[1].conn, "you called?"),
			sendWord(ends[1].conn, ends[0].conn, "no, you did")); err != nil {
			t.Error(err)
		}
		if s := g.only(t); s.Phase.String() != "established" {
			t.Errorf("state %+v", s)
		}
		ends[0].conn.Close()
		ends[1].conn.Close()
		time.Sleep(50 * time.Millisecond)
		g.forget(t)
	}
	g.noSuspectSegments(t)
}
