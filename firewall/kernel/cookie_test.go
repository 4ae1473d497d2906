package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// synFlood begins to send SYNs to a port of g from random addresses and ports, of both families in
// turn.
func (g *pairLab) synFlood(t *testing.T, port uint16) *nstest.Frames {
	return g.flood(t, 0, func(random *rand.Rand) build.TCP {
		return build.TCP{SrcPort: uint16(1024 + random.IntN(60000)), DstPort: port,
			Seq: random.Uint32(), Flags: packet.FlagSYN, Window: 64240}
	})
}

// floodUntilCookies is synFlood, and returns when cookies are on.
func (g *pairLab) floodUntilCookies(t *testing.T, port uint16) *nstest.Frames {
	t.Helper()
	g.needCookies(t)
	f := g.synFlood(t, port)
	nstest.Eventually(t, "cookies are on", func() bool { return g.stats(t).Cookies.On })
	return f
}

// flood begins to send segments to g from random addresses, of both families in turn. Floods of one
// test that have different streams have different addresses.
func (g *pairLab) flood(t *testing.T, stream uint64,
	segment func(random *rand.Rand) build.TCP) *nstest.Frames {
	t.Helper()
	random := rand.New(rand.NewPCG(testrand.Seed(t), stream))
	f, err := nstest.OpenFrames(g.client, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	var to net.HardwareAddr
	if err := g.server.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			to = i.HardwareAddr
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	f.Flood(func(n int) []byte {
		var ip build.Layer = build.IPv4{Src: netip.AddrFrom4([4]byte{11, byte(random.IntN(256)),
			byte(random.IntN(256)), byte(1 + random.IntN(250))}),
			Dst: netip.MustParseAddr("10.0.0.1")}
		kind := []byte{0x08, 0}
		if n%2 == 1 {
			src := netip.MustParseAddr("fd11::1").As16()
			for i := 2; i < 16; i++ {
				src[i] = byte(random.IntN(256))
			}
			ip = build.IPv6{Src: netip.AddrFrom16(src), Dst: netip.MustParseAddr("fd00::1")}
			kind = []byte{0x86, 0xdd}
		}
		b, err := build.Packet(ip, segment(random))
		if err != nil {
			t.Error(err)
		}
		frame := append(append(append([]byte(nil), to...), f.MAC...), kind...)
		return append(frame, b...)
	})
	return f
}

// stopFlood ends it and returns how many SYNs were sent.
func stopFlood(t *testing.T, f *nstest.Frames) int {
	t.Helper()
	n, err := f.Stop()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// listenTCP listens without MPTCP, which the stack takes no cookies of ours for.
func listenTCP(t *testing.T, n *nstest.Node, address string) {
	t.Helper()
	var l net.Listener
	if err := n.Do(func() (err error) {
		var c net.ListenConfig
		c.SetMultipathTCP(false)
		l, err = c.Listen(context.Background(), "tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go nstest.Echo(l)
}

// echoes sends so much through a new connection, and wants it back.
func (g *pairLab) echoes(to string, size int) error { return g.echoesFor(to, size, testTimeout) }

// echoesFor does so for some time at most.
func (g *pairLab) echoesFor(to string, size int, most time.Duration) error {
	c, err := dialFrom(g.client, to, min(most, testTimeout))
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(most))
	go io.CopyN(c, constant('x'), int64(size))
	n, err := io.CopyN(io.Discard, c, int64(size))
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, size, err)
	}
	return nil
}

type constant byte

func (c constant) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c)
	}
	return len(b), nil
}

func (g *pairLab) stats(t *testing.T) Stats {
	t.Helper()
	s, err := g.engine.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCookiesBehindEstablished: the first rule lets pass all segments with ACK, without a state.
// The one that redeems a cookie does so all the same.
func TestCookiesBehindEstablished(t *testing.T) {
	t.Parallel()
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 20000, 2000, 500
	g := newPairLabWith(t, "add allow tcp from any to any established\n"+
		"add allow tcp from any to me 8080 setup keep-state\n"+
		"add allow ipv6-icmp from any to any\n", o)
	listenTCP(t, g.server, "[::]:8080")
	g.needCookies(t)
	to := []string{"10.0.0.1:8080", "[fd00::1]:8080"}
	for _, a := range to { // the verdict is cached
		if err := g.echoes(a, 1<<20); err != nil {
			t.Fatalf("before the flood: %s: %v", a, err)
		}
	}
	f := g.floodUntilCookies(t, 8080)
	for n := range 10 {
		if err := g.echoes(to[n%2], 1<<16); err != nil {
			t.Errorf("in the flood: %s: %v", to[n%2], err)
		}
	}
	stopFlood(t, f)
	if s := g.stats(t); s.Cookies.Redeemed < 10 {
		t.Errorf("cookies %+v", s.Cookies)
	}
}

// TestSYNCookies floods a service from random sources: cookies begin by themselves, the service
// continues for every other client, half-open states stay few, and the cookies end when the flood
// has.
func TestSYNCookies(t *testing.T) {
	t.Parallel()
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 20000, 2000, 500
	o.Timeouts.Syn = 2 * time.Second
	g := newPairLabWith(t, webRules, o)
	listenTCP(t, g.server, "[::]:8080")
	if err := g.engine.Load(compile(
		t,
		"add check-state\nadd allow tcp from any to me 80,8080,9999 setup keep-state\n",
	)); err != nil {
		t.Fatal(err)
	}
	g.needCookies(t)
	to := []string{"10.0.0.1:8080", "[fd00::1]:8080"}
	for _, a := range to {
		if err := g.echoes(a, 3<<20); err != nil {
			t.Fatalf("before the flood: %s: %v", a, err)
		}
	}
	if s := g.stats(t); s.Cookies.Sent != 0 || s.Cookies.On {
		t.Fatalf("before the flood: %+v", s.Cookies)
	}
	f := g.floodUntilCookies(t, 8080)
	for n := range 40 {
		if err := g.echoes(to[n%2], 1<<20); err != nil {
			t.Errorf("in the flood: %s: %v", to[n%2], err)
		}
		if s := g.stats(t); s.HalfOpen > 2000/4+200 {
			t.Fatalf("%d half-open states", s.HalfOpen)
		}
	}
	g.outsiders(t)
	sent := stopFlood(t, f)
	s := g.stats(t)
	t.Logf("%d SYNs sent; %+v, %d half-open states", sent, s.Cookies, s.HalfOpen)
	// How many SYNs came is not known: a busy machine loses some on their way.
	if s.Cookies.Redeemed < 40 {
		t.Errorf("cookies %+v", s.Cookies)
	}
	decided, err := g.engine.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	reasons := firewall.ByReason(decided)
	if reasons[firewall.ReasonCookie] != s.Cookies.Sent {
		t.Errorf("%d cookies sent, %d SYNs were decided so", s.Cookies.Sent,
			reasons[firewall.ReasonCookie])
	}
	for _, r := range []firewall.Reason{firewall.ReasonTCPWindow, firewall.ReasonTCPAck,
		firewall.ReasonHalfOpenFull, firewall.ReasonStatesFull} {
		if reasons[r] != 0 {
			t.Errorf("%d packets dropped: %v", reasons[r], r)
		}
	}
	nstest.Eventually(t, "cookies are off", func() bool { return !g.stats(t).Cookies.On })
	for _, a := range to {
		if err := g.echoes(a, 1<<20); err != nil {
			t.Errorf("after the flood: %s: %v", a, err)
		}
	}
	if after := g.stats(t); after.Cookies.Sent != s.Cookies.Sent {
		t.Errorf("cookies are off, and %d were sent", after.Cookies.Sent-s.Cookies.Sent)
	}
}

// TestCookiesEndWithTheSettings: an engine whose settings allow no SYN cookies ends those of the
// engine before it, while the flood continues.
func TestCookiesEndWithTheSettings(t *testing.T) {
	t.Parallel()
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 20000, 2000, 500
	rules := compile(t, "add check-state\nadd allow tcp from any to me 8080 setup keep-state\n")
	g := newPairLabWith(t, webRules, o)
	listenTCP(t, g.server, "[::]:8080")
	load := func() {
		t.Helper()
		if err := g.server.Do(func() error { return g.engine.Load(rules) }); err != nil {
			t.Fatal(err)
		}
	}
	load()
	f := g.floodUntilCookies(t, 8080)
	g.options.NoCookies = true
	g.reopen(t)
	load()
	nstest.Eventually(t, "cookies are off", func() bool { return !g.stats(t).Cookies.On })
	load() // packets that found them on are through
	before := g.stats(t).Cookies
	time.Sleep(shortWait)
	after := g.stats(t).Cookies
	stopFlood(t, f)
	if after.Sent != before.Sent || after.On || after.TimesOn != before.TimesOn {
		t.Errorf("no cookies are allowed: %+v, then %+v", before, after)
	}
}

// TestCookieRefusedByTheStack: a host whose TCP no longer scales windows takes no connection by a
// cookie that says so. The acknowledgement is dropped, and with a reason of its own: a rule let it
// in.
func TestCookieRefusedByTheStack(t *testing.T) {
	t.Parallel()
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 20000, 2000, 500
	g := newPairLabWith(t, webRules, o)
	listenTCP(t, g.server, "[::]:8080")
	if err := g.engine.Load(compile(t,
		"add check-state\nadd allow tcp from any to me 8080 setup keep-state\n")); err != nil {
		t.Fatal(err)
	}
	f := g.floodUntilCookies(t, 8080)
	g.server.Sysctl("net.ipv4.tcp_window_scaling", "0")
	for _, to := range []string{"10.0.0.1:8080", "[fd00::1]:8080"} {
		before, _ := g.decided(t, firewall.ReasonCookieRefused)
		c, err := g.dial(to) // to the client the answer opens it
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		defer c.Close()
		nstest.Eventually(t, "the stack refuses an acknowledgement", func() bool {
			refused, passed := g.decided(t, firewall.ReasonCookieRefused)
			return refused > before || passed > 0
		})
	}
	stopFlood(t, f)
	if _, passed := g.decided(t, firewall.ReasonCookieRefused); passed != 0 {
		t.Errorf("%d acknowledgements passed although the stack refused them", passed)
	}
	if s := g.stats(t); s.Cookies.Redeemed != 0 {
		t.Errorf("%d cookies were redeemed", s.Cookies.Redeemed)
	}
	for _, s := range g.states(t) {
		if s.Phase != flow.PhaseOpening {
			t.Errorf("a refused acknowledgement has left %+v", s)
		}
	}
}

// decided counts the packets that were dropped and that passed for a reason.
func (g *pairLab) decided(t *testing.T, reason firewall.Reason) (dropped, passed uint64) {
	t.Helper()
	decided, err := g.engine.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	for d, n := range decided {
		switch {
		case d.Reason == reason && d.Pass:
			passed += n.Packets
		case d.Reason == reason:
			dropped += n.Packets
		}
	}
	return dropped, passed
}

// outsiders looks at what cookies are not for, while they are on.
func (g *pairLab) outsiders(t *testing.T) {
	t.Helper()
	// A client without time stamps, and so without window scaling and SACK.
	g.client.Sysctl("net.ipv4.tcp_timestamps", "0")
	for _, to := range []string{"10.0.0.1:8080", "[fd00::1]:8080"} {
		if err := g.echoes(to, 1<<20); err != nil {
			t.Errorf("without time stamps: %s: %v", to, err)
		}
	}
	g.client.Sysctl("net.ipv4.tcp_timestamps", "1")
	// A listener of MPTCP: an ordinary state. Go's listeners are such by default.
	if c, err := g.dial("10.0.0.1:80"); err != nil {
		t.Errorf("MPTCP: %v", err)
	} else if err := errors.Join(echoWord(c, "hello"), c.Close()); err != nil {
		t.Errorf("MPTCP: %v", err)
	}
	// Where no socket listens, and where no rule lets in.
	for _, port := range []string{"9999", "81"} {
		if c, err := g.connect("10.0.0.1:" + port); err == nil {
			c.Close()
			t.Errorf("port %s is open", port)
		}
	}
	// Acknowledgements of forged cookies open nothing.
	before := g.stats(t)
	acks := g.flood(t, 1, func(random *rand.Rand) build.TCP {
		return build.TCP{SrcPort: uint16(1024 + random.IntN(60000)), DstPort: 8080,
			Seq: random.Uint32(), Ack: random.Uint32(), Flags: packet.FlagACK, Window: 1000}
	})
	time.Sleep(200 * time.Millisecond)
	stopFlood(t, acks)
	if after := g.stats(t); after.Cookies.Redeemed != before.Cookies.Redeemed {
		t.Error("a made-up acknowledgement was redeemed")
	}
}

// TestCookieUsesAfterAnotherEngine: what the kernel has is not looked for again when the engine
// before used it, and the settings of the network namespace decide all the same.
func TestCookieUsesAfterAnotherEngine(t *testing.T) {
	lack, err := lacksCookieFunction()
	if err != nil {
		t.Fatal(err)
	}
	before := uint32(cookieUse)
	if lack != "" {
		before = 0 // no engine used it here
	}
	n := nstest.New(t).Node("host")
	for _, c := range []struct{ name, value string }{{"tcp_syncookies", "1"},
		{"tcp_timestamps", "0"}, {"tcp_timestamps", "1"}, {"tcp_syncookies", "0"}} {
		if err := n.Do(func() error {
			path := "/proc/sys/net/ipv4/" + c.name
			if err := os.WriteFile(path, []byte(c.value), 0o644); err != nil {
				return err
			}
			bits, why, err := cookieUses(before)
			if err != nil {
				return err
			}
			want, wantWhy, err := cookieUses(0)
			if bits != want || why != wantWhy || (bits == 0) != (why != "") {
				t.Errorf("%s %s: %x %q after another engine, %x %q else", c.name, c.value, bits,
					why, want, wantWhy)
			}
			if c.value == "0" && c.name == "tcp_syncookies" && bits != 0 {
				t.Errorf("bits %x although the settings of the namespace say no", bits)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
