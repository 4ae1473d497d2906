package dns

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/internal/nstest"
)

// ask makes a query, with EDNS if size is not 0.
func ask(t testing.TB, name string, kind dnsmessage.Type, size int) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, RecursionDesired: true})
	m := message{b: &b}
	m.do(b.StartQuestions())
	n, err := dnsmessage.NewName(name)
	m.do(err)
	m.do(b.Question(dnsmessage.Question{Name: n, Type: kind, Class: dnsmessage.ClassINET}))
	if size > 0 {
		m.do(b.StartAdditionals())
		var h dnsmessage.ResourceHeader
		m.do(h.SetEDNS0(size, 0, false))
		m.do(b.OPTResource(h, dnsmessage.OPTResource{}))
	}
	msg, err := b.Finish()
	if m.do(err); m.err != nil {
		t.Fatal(m.err)
	}
	return msg
}

// testTimeout is how long tests wait for what has to come.
const testTimeout = 5 * time.Minute

// newServer returns a Server that does not listen, with two pods and many of one label.
func newServer(resolvers ...netip.AddrPort) *Server {
	names := new(Names)
	names.Add(podOf("1", "web", map[string]string{"app": "web"}, "10.0.0.2", "fd00::2"))
	names.Add(podOf("2", "four", nil, "10.0.0.3"))
	for i := range 200 {
		names.Add(podOf(fmt.Sprint("m", i), fmt.Sprint("many-", i),
			map[string]string{"app": "many"}, fmt.Sprintf("10.0.1.%d", i),
			fmt.Sprintf("fd00::1:%x", i)))
	}
	s := &Server{names: names, random: func() uint32 { return 12345 },
		queries: newQuota(mostQueries, podQueries), conns: newQuota(mostConns, podConns),
		config: Config{Gateways: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Names: names,
			Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"),
				netip.MustParsePrefix("fd00::/64")},
			Resolvers: func() []netip.AddrPort { return resolvers }},
		resolverTime: testTimeout, connIdle: testTimeout}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// shown is an answer as text.
func shown(t *testing.T, out []byte) string {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(out); err != nil {
		t.Fatal(err)
	}
	if m.ID != 7 || !m.Response {
		t.Errorf("header %+v", m.Header)
	}
	text := strings.TrimPrefix(m.RCode.String(), "RCode")
	for _, a := range m.Answers {
		switch r := a.Body.(type) {
		case *dnsmessage.AResource:
			text += " " + netip.AddrFrom4(r.A).String()
		case *dnsmessage.AAAAResource:
			text += " " + netip.AddrFrom16(r.AAAA).String()
		case *dnsmessage.PTRResource:
			text += " " + r.PTR.String()
		}
	}
	if len(m.Authorities) > 0 {
		text += " SOA"
	}
	if m.Truncated {
		text += " truncated"
	}
	return text
}

func TestAnswers(t *testing.T) {
	s := newServer()
	const v6 = "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa."
	for _, c := range []struct {
		name string
		kind dnsmessage.Type
		want string
	}{
		{"web.weir.", dnsmessage.TypeA, "Success 10.0.0.2"},
		{"WEB.Weir.", dnsmessage.TypeAAAA, "Success fd00::2"},
		{"web.weir.", dnsmessage.TypeMX, "Success SOA"},
		{"four.weir.", dnsmessage.TypeAAAA, "Success SOA"},
		{"none.weir.", dnsmessage.TypeA, "NameError SOA"},
		{"weir.", dnsmessage.TypeA, "Success SOA"},
		{"web.app.label.weir.", dnsmessage.TypeA, "Success 10.0.0.2"},
		{"2.0.0.10.in-addr.arpa.", dnsmessage.TypePTR, "Success web.weir."},
		{"2.0.0.10.in-addr.arpa.", dnsmessage.TypeA, "Success SOA"},
		{"99.0.0.10.in-addr.arpa.", dnsmessage.TypePTR, "NameError SOA"},
		{v6, dnsmessage.TypePTR, "Success web.weir."},
	} {
		out, _, v := s.answer(ask(t, c.name, c.kind, 0), netip.Addr{}, false)
		if v != reply {
			t.Errorf("%s: not answered", c.name)
		} else if got := shown(t, out); got != c.want {
			t.Errorf("%s %v: %q, not %q", c.name, c.kind, got, c.want)
		}
	}
	for _, name := range []string{"example.org.", "weir.example.", "xweir.", ".", "com.",
		"1.2.0.192.in-addr.arpa.", "2.0.10.in-addr.arpa.", "x" + v6[1:], "web."} {
		_, _, v := s.answer(ask(t, name, dnsmessage.TypePTR, 0), netip.Addr{}, false)
		if v != forward {
			t.Errorf("%s is not forwarded", name)
		}
	}
}

// TestAnswersOverTCP: an answer over UDP is as long as the client takes and a packet is; more comes
// over TCP, and no more than some addresses ever.
func TestAnswersOverTCP(t *testing.T) {
	s := newServer()
	const name = "many.app.label.weir."
	for _, c := range []struct {
		size, longest int
		tcp, whole    bool
	}{{0, 512, false, false}, {512, 512, false, false}, {4096, 1232, false, true},
		{0, 65535, true, true},
		{65535, 1232, false, true}} {
		out, _, _ := s.answer(ask(t, name, dnsmessage.TypeAAAA, c.size), netip.Addr{}, c.tcp)
		text := shown(t, out)
		if len(out) > c.longest || strings.HasSuffix(text, "truncated") == c.whole ||
			c.whole && strings.Count(text, "fd00") != mostAddrs {
			t.Errorf("%+v: %d bytes, %s", c, len(out), text)
		}
	}
}

func TestBadQueries(t *testing.T) {
	s := newServer()
	good := ask(t, "web.weir.", dnsmessage.TypeA, 0)
	answerTo := append(bytes.Clone(good[:2]), good[2]|0x80)
	answerTo = append(answerTo, good[3:]...)
	chaos := bytes.Clone(good)
	chaos[len(chaos)-1] = 3
	update := bytes.Clone(good)
	update[2] |= 5 << 3
	two := bytes.Clone(good)
	two[5] = 2
	for _, c := range []struct {
		what string
		msg  []byte
		want string // "": dropped
	}{
		{"nothing", nil, ""}, {"half a header", good[:11], ""}, {"an answer", answerTo, ""},
		{"another class", chaos, "Refused"}, {"an update", update, "NotImplemented"},
		{"two questions", two, "FormatError"}, {"no question", append(bytes.Clone(good[:4]),
			make([]byte, 8)...), "FormatError"},
		{"half a question", good[:len(good)-1], "FormatError"},
	} {
		out, _, v := s.answer(c.msg, netip.Addr{}, false)
		if v == drop != (c.want == "") || v == forward {
			t.Errorf("%s: %v", c.what, v)
		} else if v == reply {
			if got := shown(t, out); got != c.want {
				t.Errorf("%s: %s, not %s", c.what, got, c.want)
			}
		}
	}
}

func FuzzAnswer(f *testing.F) {
	s := newServer()
	f.Add(ask(f, "web.weir.", dnsmessage.TypeA, 1232))
	f.Add(ask(f, "2.0.0.10.in-addr.arpa.", dnsmessage.TypePTR, 0))
	f.Fuzz(func(t *testing.T, msg []byte) {
		out, q, v := s.answer(msg, netip.Addr{}, false)
		if v != reply {
			return
		}
		var p dnsmessage.Parser
		h, err := p.Start(out)
		if err != nil || !h.Response || h.ID != q.header.ID || len(out) > mostSize {
			t.Fatalf("%x is answered by %x", msg, out)
		}
	})
}

// serving lets a Server answer on a port of 127.0.0.1, which is its gateway.
func serving(t *testing.T, s *Server) string {
	t.Helper()
	l, u := bothOnOnePort(t)
	s.closers = append(s.closers, l.Close, u.Close)
	s.running.Go(func() { s.serveTCP(l) })
	s.running.Go(func() { s.serveUDP(u) })
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// bothOnOnePort listens on a port of 127.0.0.1 for TCP and UDP.
func bothOnOnePort(t *testing.T) (*net.TCPListener, *net.UDPConn) {
	t.Helper()
	for try := 0; ; try++ { // another program may have the port that TCP got for UDP
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		at := l.Addr().(*net.TCPAddr)
		u, err := net.ListenUDP("udp", &net.UDPAddr{IP: at.IP, Port: at.Port})
		if err == nil {
			return l, u
		}
		l.Close()
		if try == 20 {
			t.Fatal(err)
		}
	}
}

// resolver is a host's resolver that answers every query for A with an address, after a forged
// answer; it does not answer names that begin with "lost".
func resolver(t *testing.T, addr string) netip.AddrPort {
	t.Helper()
	other := newServer()
	other.names.Add(podOf("r", "x", nil, addr))
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := u.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			q, _, _ := parse(buf[:n])
			if strings.HasPrefix(q.name, "lost") {
				continue
			}
			forged := q
			forged.header.ID++
			u.WriteToUDPAddrPort(forged.build(0, false, []dnsmessage.ResourceBody{
				&dnsmessage.AResource{A: [4]byte{6, 6, 6, 6}}}, false), from)
			u.WriteToUDPAddrPort(q.build(0, false, []dnsmessage.ResourceBody{
				&dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()}}, false), from)
		}
	}()
	return u.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestServer(t *testing.T) {
	closed := netip.MustParseAddrPort("127.0.0.1:1") // refused at once: the next one is asked
	s := newServer(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 9), closed)
	s.config.Gateways = []netip.Addr{netip.MustParseAddr("127.0.0.3")}
	s.names.Add(podOf("me", "me", nil, "127.0.0.1"))
	real := resolver(t, "192.0.2.77")
	s.config.Resolvers = func() []netip.AddrPort { return []netip.AddrPort{closed, real} }
	at := serving(t, s)
	for _, network := range []string{"udp", "tcp"} {
		c, err := net.Dial(network, at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(testTimeout))
		query := func(msg []byte) string {
			t.Helper()
			if network == "tcp" {
				if err := writeMessage(c, msg); err != nil {
					t.Fatal(err)
				}
				out, err := readMessage(c, math.MaxUint16)
				if err != nil {
					t.Fatal(err)
				}
				return shown(t, out)
			}
			if _, err := c.Write(msg); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 4096)
			n, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			return shown(t, buf[:n])
		}
		if got := query(ask(t, "web.weir.", dnsmessage.TypeA, 0)); got != "Success 10.0.0.2" {
			t.Errorf("%s: %s", network, got)
		}
		want := "Success 192.0.2.77"
		if network == "tcp" { // that resolver has no TCP
			want = "ServerFailure"
		}
		if got := query(ask(t, "example.org.", dnsmessage.TypeA, 0)); got != want {
			t.Errorf("%s: %s", network, got)
		}
	}
	// another address is not answered
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := d.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write(ask(t, "web.weir.", dnsmessage.TypeA, 0))
	c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := c.Read(make([]byte, 512)); err == nil {
		t.Errorf("a stranger gets %d bytes", n)
	}
	var got Stats
	defer func() {
		if t.Failed() {
			t.Logf("%+v", got)
		}
	}()
	nstest.Eventually(t, "everything is counted", func() bool {
		got = s.Stats()
		return got == Stats{Answered: 2, Forwarded: 1, Failed: 1, Refused: 1}
	})
}

// TestLongDatagrams: an answer of a resolver over UDP that is too long becomes one that says so.
func TestLongDatagrams(t *testing.T) {
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	s := newServer(u.LocalAddr().(*net.UDPAddr).AddrPort())
	s.config.Gateways = nil
	defer s.cancel()
	msg := ask(t, "example.org.", dnsmessage.TypeA, 65535)
	q, _, _ := parse(msg)
	for _, size := range []int{mostDatagram, mostDatagram + 1, 1<<16 - 100} {
		go func() {
			buf := make([]byte, 512)
			n, from, err := u.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			q, _, _ := parse(buf[:n])
			out := q.build(dnsmessage.RCodeSuccess, false, nil, false)
			u.WriteToUDPAddrPort(append(out, make([]byte, size-len(out))...), from)
		}()
		out, err := s.relay(msg, &q, false)
		if err != nil {
			t.Fatal(err)
		}
		if size <= mostDatagram {
			if len(out) != size {
				t.Errorf("of %d bytes the pod gets %d", size, len(out))
			}
		} else if got := shown(t, out); len(out) > 100 || got != "Success truncated" {
			t.Errorf("of %d bytes the pod gets %d: %s", size, len(out), got)
		}
	}
}

// TestLongQueries: a connection with a query that is too long ends before it is read.
func TestLongQueries(t *testing.T) {
	s := newServer()
	s.names.Add(podOf("me", "me", nil, "127.0.0.1"))
	s.config.Gateways = nil
	c, err := net.Dial("tcp", serving(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := writeMessage(c, ask(t, "web.weir.", dnsmessage.TypeA, 0)); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := readMessage(c, math.MaxUint16); err != nil {
		t.Fatal(err)
	}
	if err := writeMessage(c, make([]byte, mostQuery+1)); err != nil {
		t.Fatal(err)
	}
	if out, err := readMessage(c, math.MaxUint16); err == nil {
		t.Errorf("it is answered: %x", out)
	}
}

// TestFloodsAreBounded: queries that no resolver answers keep nothing but their own pod waiting.
func TestFloodsAreBounded(t *testing.T) {
	s := newServer()
	s.names.Add(podOf("me", "me", nil, "127.0.0.1"))
	s.config.Gateways = nil
	silent := resolver(t, "192.0.2.77")
	s.config.Resolvers = func() []netip.AddrPort { return []netip.AddrPort{silent} }
	at := serving(t, s)
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range podQueries + 10 {
		c.Write(ask(t, "lost.example.", dnsmessage.TypeA, 0))
	}
	c.Write(ask(t, "web.weir.", dnsmessage.TypeA, 0))
	c.SetReadDeadline(time.Now().Add(testTimeout))
	buf := make([]byte, 4096)
	if n, err := c.Read(buf); err != nil || shown(t, buf[:n]) != "Success 10.0.0.2" {
		t.Errorf("%d, %v", n, err)
	}
	if got := s.Stats().Dropped; got != 10 {
		t.Errorf("%d dropped", got)
	}
	var conns []net.Conn
	for range podConns + 1 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	last := conns[podConns]
	last.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := last.Read(buf); err == nil || s.Stats().Dropped != 11 {
		t.Errorf("a connection too many stays: %v, %d", err, s.Stats().Dropped)
	}
	if !s.queries.take(netip.MustParseAddr("10.0.0.2")) {
		t.Error("another pod has no place")
	}
}

func BenchmarkAnswer(b *testing.B) {
	s := newServer()
	msg := ask(b, "web.weir.", dnsmessage.TypeA, 1232)
	b.ReportAllocs()
	for b.Loop() {
		s.answer(msg, netip.Addr{}, false)
	}
}
