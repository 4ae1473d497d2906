package eyeballs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

const (
	typeA     = dnsmessage.TypeA
	typeAAAA  = dnsmessage.TypeAAAA
	typeHTTPS = dnsmessage.TypeHTTPS
)

// bench is a dialer with its own resolver, history and DNS server.
type fixture struct {
	*Dialer
	t   *testing.T
	dns *eyeballstest.DNS

	mu     sync.Mutex
	events []Event
}

func newFixture(t *testing.T, hosts string) *fixture {
	t.Helper()
	server, err := eyeballstest.NewDNS("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	dir := t.TempDir()
	conf := fmt.Sprintf("nameserver [127.0.0.1]:%d\n", server.Addr.Port())
	for name, text := range map[string]string{"resolv.conf": conf, "hosts": hosts} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := &fixture{t: t, dns: server}
	f.Dialer = &Dialer{Timeout: 10 * time.Second, Resolver: &dns.Resolver{Dir: dir}, History: &History{}}
	f.Trace = func(e Event) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = append(f.events, e)
	}
	pretend(t, true, true)
	return f
}

// pretend makes this host look as if it had the families, whatever it has.
func pretend(t *testing.T, v4, v6 bool) {
	n := &network{v4: v4, v6: v6, sources: map[netip.Addr]netip.Addr{}, taken: time.Now().Add(time.Hour), id: 7}
	if v4 {
		n.route4 = netip.MustParseAddr("192.0.2.9")
	}
	if v6 {
		n.route6 = netip.MustParseAddr("2001:db8::9")
	}
	lastLook.Lock()
	defer lastLook.Unlock()
	lastLook.n = n
	t.Cleanup(func() {
		lastLook.Lock()
		defer lastLook.Unlock()
		lastLook.n = nil
	})
}

func (f *fixture) count(kind EventKind) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// queries returns what the server was asked. A dial may be over before the
// server has read the last question.
func (f *fixture) queries() []string {
	time.Sleep(20 * time.Millisecond)
	return f.dns.Queries()
}

func (f *fixture) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = nil
	f.queries()
}

// listen accepts connections on all addresses at one port, and echoes.
func listen(t *testing.T, addrs ...string) (port uint16) {
	t.Helper()
	for try := 0; ; try++ {
		var all []net.Listener
		var err error
		for _, a := range addrs {
			var l net.Listener
			if l, err = net.Listen("tcp", net.JoinHostPort(a, fmt.Sprint(port))); err != nil {
				break
			}
			port = l.Addr().(*net.TCPAddr).AddrPort().Port()
			all = append(all, l)
		}
		if err == nil {
			for _, l := range all {
				t.Cleanup(func() { l.Close() })
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						go func() { io.Copy(c, c); c.Close() }()
					}
				}()
			}
			return port
		}
		for _, l := range all {
			l.Close()
		}
		if port = 0; try == 20 {
			t.Fatal(err)
		}
	}
}

func ip(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func addr(name string, port uint16) string { return net.JoinHostPort(name, fmt.Sprint(port)) }

// dial dials and returns the address reached and the time it took.
func (f *fixture) dial(network, address string) (netip.Addr, time.Duration) {
	f.t.Helper()
	begin := time.Now()
	c, err := f.DialContext(context.Background(), network, address)
	took := time.Since(begin)
	if err != nil {
		f.t.Fatalf("after %v: %v", took, err)
	}
	defer c.Close()
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	return ap.Addr(), took
}

func TestDialPrefersIPv6AndSendsNoOtherSYN(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	got, _ := f.dial("tcp", addr("host.test", port))
	if got != netip.IPv6Loopback() || f.count(Connecting) != 1 {
		t.Errorf("reached %v after %d attempts", got, f.count(Connecting))
	}
	if q := f.queries(); !slices.Equal(q, []string{"AAAA host.test", "A host.test"}) {
		t.Errorf("asked %q", q)
	}
}

func TestDialNetworks(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	for network, want := range map[string]string{"tcp4": "127.0.0.1", "udp4": "127.0.0.1", "tcp6": "::1", "udp6": "::1", "udp": "::1"} {
		f.reset()
		if got, _ := f.dial(network, addr("host.test", port)); got.String() != want {
			t.Errorf("%s reached %v", network, got)
		}
		if q := f.queries(); strings.HasSuffix(network, "4") && slices.Contains(q, "AAAA host.test") || strings.HasSuffix(network, "6") && slices.Contains(q, "A host.test") {
			t.Errorf("%s asked %q", network, q)
		}
	}
	f.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}
	f.reset()
	c, err := f.Dial("tcp", addr("host.test", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if local := c.LocalAddr().String(); !strings.HasPrefix(local, "127.0.0.9:") || slices.Contains(f.queries(), "AAAA host.test") {
		t.Errorf("from %s", local)
	}
}

func TestDialRefusedGoesOnAtOnce(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.5")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	got, took := f.dial("tcp", addr("host.test", port))
	if got.String() != "127.0.0.5" || took > 200*time.Millisecond || f.count(Failed) != 4 {
		t.Errorf("reached %v after %v and %d failures", got, took, f.count(Failed))
	}
}

func TestDialD7AsksNothingUseless(t *testing.T) {
	f := newFixture(t, "127.0.0.1 both.test\n::1 both.test\n")
	port := listen(t, "127.0.0.1", "::1")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1"), Delay: time.Second})
	pretend(t, true, false)
	got, took := f.dial("tcp", addr("host.test", port))
	if q := f.queries(); !got.Is4() || took > 40*time.Millisecond || !slices.Equal(q, []string{"A host.test"}) {
		t.Errorf("v4 host: reached %v after %v, asked %q", got, took, q)
	}
	// The hosts file is heard in full: ::1 needs no route.
	if got, _ := f.dial("tcp", addr("both.test", port)); !got.Is6() {
		t.Errorf("hosts file: reached %v", got)
	}
	pretend(t, false, true)
	f.dns.Set("host.test", typeA, eyeballstest.Record{Lose: -1})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	got, took = f.dial("tcp", addr("host.test", port))
	if q := f.queries(); !got.Is6() || took > 60*time.Millisecond || slices.Contains(q, "A host.test") {
		t.Errorf("v6 host: reached %v after %v, asked %q", got, took, q)
	}
}

func TestDialAnswersLateOrLost(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	a := eyeballstest.Record{Addrs: ip("127.0.0.1")}
	aaaa := eyeballstest.Record{Addrs: ip("::1")}
	late := func(r eyeballstest.Record, by time.Duration) eyeballstest.Record { r.Delay = by; return r }
	lost := func(r eyeballstest.Record, n int) eyeballstest.Record { r.Lose = n; return r }
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		a, aaaa eyeballstest.Record
		want    string
		from    time.Duration
		to      time.Duration
	}{
		"AAAA late within RD": {a, late(aaaa, 30*ms), "::1", 30 * ms, 50 * ms},
		"AAAA late":           {a, late(aaaa, 1000*ms), "127.0.0.1", 50 * ms, 90 * ms},
		"A late":              {late(a, 1000*ms), aaaa, "::1", 0, 40 * ms},
		"AAAA lost":           {a, lost(aaaa, -1), "127.0.0.1", 50 * ms, 90 * ms},
		"A lost":              {lost(a, -1), aaaa, "::1", 0, 40 * ms},
		"both lost once":      {lost(a, 1), lost(aaaa, 1), "::1", 990 * ms, 1100 * ms},
		"AAAA fails":          {a, eyeballstest.Record{RCode: dnsmessage.RCodeServerFailure}, "127.0.0.1", 0, 40 * ms},
	} {
		time.Sleep(10 * time.Millisecond) // the server may not have read the last question yet
		f.dns.Clear()
		f.dns.Set("host.test", typeA, tt.a)
		f.dns.Set("host.test", typeAAAA, tt.aaaa)
		f.History.Forget()
		got, took := f.dial("tcp", addr("host.test", port))
		if got.String() != tt.want || took < tt.from || took > tt.to+50*ms {
			t.Errorf("%s: reached %v after %v", name, got, took)
		}
	}
}

func TestDialErrorListsEveryAttempt(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.9") // the others refuse on this port
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.2", "127.0.0.3")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	_, err := f.Dial("tcp", addr("host.test", port))
	var all *Error
	var op *net.OpError
	if !errors.As(err, &all) || !errors.As(err, &op) || op.Op != "dial" {
		t.Fatalf("error %T %v", err, err)
	}
	if len(all.Attempts) != 3 || !errors.Is(err, syscall.ECONNREFUSED) || op.Timeout() {
		t.Errorf("%+v", all)
	}
	for _, want := range []string{"[::1]:", "127.0.0.2:", "127.0.0.3:", "connect", "connection refused", "all 3 attempts failed"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %q", want, err)
		}
	}
	// A name that does not exist.
	_, err = f.Dial("tcp", "none.test:80")
	var d *net.DNSError
	if !errors.As(err, &d) || !d.IsNotFound || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("error %v", err)
	}
}

func TestDialTimeout(t *testing.T) {
	f := newFixture(t, "")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Lose: -1})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Lose: -1})
	f.Timeout = 100 * time.Millisecond
	begin := time.Now()
	_, err := f.Dial("tcp", "host.test:80")
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took < 95*time.Millisecond || took > 400*time.Millisecond {
		t.Errorf("took %v", took)
	}
	f.Timeout = 0
	f.Deadline = time.Now().Add(-time.Second)
	if _, err := f.Dial("tcp", "host.test:80"); !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("deadline in the past: %v", err)
	}
	f.Deadline = time.Time{}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := f.DialContext(ctx, "tcp", "host.test:80"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestDialLeavesNothing(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.2", "127.0.0.1")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Lose: -1})
	fds := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc/self/fd to count sockets in")
		}
		n := 0
		for _, fd := range list {
			if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, "socket:") {
				n++
			}
		}
		return n
	}
	f.dial("tcp", addr("host.test", port))
	time.Sleep(50 * time.Millisecond) // the echo server closes its side
	sockets, goroutines := fds(), runtime.NumGoroutine()
	for range 10 {
		f.dial("tcp", addr("host.test", port))
		f.DialContext(t.Context(), "tcp", addr("none.test", port))
	}
	n, g := 0, 0
	for wait := 0; wait < 100; wait++ { // for the echo server
		if n, g = fds(), runtime.NumGoroutine(); n <= sockets && g <= goroutines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d sockets and %d goroutines, before %d and %d", n, g, sockets, goroutines)
}

func TestDialRemembersTheWinner(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Lose: -1})
	if _, took := f.dial("tcp", addr("host.test", port)); took < 50*time.Millisecond {
		t.Errorf("the first dial took %v", took)
	}
	if _, took := f.dial("tcp", addr("host.test", port)); took > 40*time.Millisecond {
		t.Errorf("the second dial waited for the silent family: %v", took)
	}
	// On another network nothing of this holds (S3).
	pretend(t, true, true)
	lastLook.n.id = 8
	if _, took := f.dial("tcp", addr("host.test", port)); took < 50*time.Millisecond {
		t.Errorf("the dial on another network took %v", took)
	}
}

func TestDialLiteral(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	for _, a := range []string{"127.0.0.1", "::1"} {
		if got, _ := f.dial("tcp", addr(a, port)); got.String() != a {
			t.Errorf("reached %v", got)
		}
	}
	if len(f.queries()) != 0 {
		t.Error("asked DNS about a literal")
	}
	sock := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := f.Dial("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := f.Dial("tcp", "127.0.0.1:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v", err)
	}
}

// TestLiteralAllocations: on a literal, the dialer costs nothing over net.Dialer.
func TestLiteralAllocations(t *testing.T) {
	// Nobody accepts, so that nothing else allocates: the backlog holds them all.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	measure := func(dial func(context.Context, string, string) (net.Conn, error)) float64 {
		return testing.AllocsPerRun(200, func() {
			c, err := dial(context.Background(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		})
	}
	for _, timeout := range []time.Duration{0, 10 * time.Second} {
		theirs := measure((&net.Dialer{Timeout: timeout}).DialContext)
		ours := measure((&Dialer{Timeout: timeout}).DialContext)
		if ours > theirs {
			t.Errorf("timeout %v: %v allocations, net.Dialer %v", timeout, ours, theirs)
		}
		t.Logf("timeout %v: %v allocations, net.Dialer %v", timeout, ours, theirs)
	}
}

func TestDialTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	good := netip.MustParseAddrPort(s.Listener.Addr().String())
	// A server that accepts and says nothing, on the same port.
	stall, err := net.Listen("tcp", addr("127.0.0.2", good.Port()))
	if err != nil {
		t.Skip("the port is taken on 127.0.0.2:", err)
	}
	defer stall.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())

	f := newFixture(t, "127.0.0.2 example.com\n127.0.0.1 example.com\n")
	f.TLS = &tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}}
	address := addr("example.com", good.Port())
	begin := time.Now()
	c, err := f.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	took := time.Since(begin)
	if state := c.(*tls.Conn).ConnectionState(); !state.HandshakeComplete || state.NegotiatedProtocol != "h2" {
		t.Errorf("%+v", state)
	}
	if took < 250*time.Millisecond || took > 500*time.Millisecond {
		t.Errorf("a stalled handshake cost %v, want one attempt delay", took)
	}
	if f.count(Connected) != 2 || f.count(Cancelled) != 1 {
		t.Errorf("events %+v", f.events)
	}
	// The next dial tries the address that stalled last.
	begin = time.Now()
	c, err = f.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if took := time.Since(begin); took > 150*time.Millisecond {
		t.Errorf("the second dial took %v", took)
	}
	// A certificate that is not trusted is a failed attempt like any other.
	f.TLS, f.Timeout = &tls.Config{}, time.Second
	_, err = f.Dial("tcp", address)
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "handshake") {
		t.Errorf("error %v", err)
	}
	// A literal gets its handshake too.
	f.TLS = &tls.Config{RootCAs: roots}
	if c, err := f.Dial("tcp", good.String()); err != nil {
		t.Error(err)
	} else if _, ok := c.(*tls.Conn); !ok {
		t.Errorf("%T", c)
	} else {
		c.Close()
	}
}

func TestDialHTTPSRecords(t *testing.T) {
	f := newFixture(t, "")
	f.HTTPS = true
	port := listen(t, "127.0.0.1", "127.0.0.7")
	param := func(k dnsmessage.SVCParamKey, v ...byte) dnsmessage.SVCParam {
		return dnsmessage.SVCParam{Key: k, Value: v}
	}
	f.dns.Set("_8443._https.host.test", typeHTTPS, eyeballstest.Record{Services: []dnsmessage.SVCBResource{{
		Priority: 1, Target: dnsmessage.MustNewName("svc.test."), Params: []dnsmessage.SVCParam{
			param(dnsmessage.SVCParamALPN, 2, 'h', '2'),
			param(dnsmessage.SVCParamPort, byte(port>>8), byte(port)),
			param(dnsmessage.SVCParamIPv4Hint, 127, 0, 0, 7),
		}}}})
	f.dns.Set("svc.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1"), Delay: time.Second})
	f.dns.Set("svc.test", typeAAAA, eyeballstest.Record{})
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.3")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{})
	c, err := f.Dial("tcp", "host.test:8443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.RemoteAddr().String(); got != addr("127.0.0.7", port) {
		t.Errorf("reached %s, want the hint at the record's port", got)
	}
}

func TestDialNAT64(t *testing.T) {
	// There is no NAT64 on loopback, but what is tried tells enough.
	f := newFixture(t, "")
	pretend(t, false, true)
	f.Timeout = 300 * time.Millisecond
	f.dns.Set("ipv4only.arpa", typeAAAA, eyeballstest.Record{Addrs: ip("64:ff9b:1::c000:aa")})
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("192.0.2.1")})
	_, err := f.Dial("tcp", "host.test:80")
	var all *Error
	if !errors.As(err, &all) || len(all.Attempts) != 1 || all.Attempts[0].Addr.String() != "[64:ff9b:1::c000:201]:80" {
		t.Errorf("error %v", err)
	}
	// A prefix from the configuration needs no question.
	f.reset()
	f.NAT64 = netip.MustParsePrefix("2001:db8:64::/96")
	_, err = f.Dial("tcp", "host.test:80")
	if !errors.As(err, &all) || len(all.Attempts) != 1 || all.Attempts[0].Addr.String() != "[2001:db8:64::c000:201]:80" {
		t.Errorf("error %v", err)
	}
	if q := f.queries(); slices.Contains(q, "AAAA ipv4only.arpa") || !slices.Contains(q, "A host.test") {
		t.Errorf("asked %q", q)
	}
}

func TestDialIDNA(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1")
	f.dns.Set("xn--bcher-kva.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1")})
	if got, _ := f.dial("tcp4", addr("B\u00fccher.test", port)); !got.Is4() {
		t.Errorf("reached %v", got)
	}
	if _, err := f.Dial("tcp", "a\u2028b.test:80"); err == nil || !strings.Contains(err.Error(), "not a domain name") {
		t.Errorf("error %v", err)
	}
}

func TestDialPort(t *testing.T) {
	f := newFixture(t, "127.0.0.1 host.test\n")
	if _, err := f.Dial("tcp", "host.test:70000"); err == nil || !strings.Contains(err.Error(), "port") {
		t.Errorf("error %v", err)
	}
	if _, err := f.Dial("tcp4", "host.test:tcpmux"); err == nil || !strings.Contains(err.Error(), ":1:") {
		t.Errorf("a service name: %v", err)
	}
}

func TestHTTPTransport(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	defer s.Close()
	f := newFixture(t, "127.0.0.1 web.test\n")
	client := &http.Client{Transport: &http.Transport{DialContext: f.DialContext}}
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	resp, err := client.Get("http://web.test:" + port + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if string(body) != "hello" || err != nil {
		t.Errorf("%q %v", body, err)
	}
}

func TestHistory(t *testing.T) {
	h, now := &History{}, time.Now()
	v6, v4 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")
	h.recall(1, "x")
	h.record(1, "x", []outcome{{addr: v6, dead: true}, {addr: v4, won: true, rtt: 40 * time.Millisecond}}, false, false, now)
	p, ok := h.recall(1, "x")
	if !ok || !p.avoid(v6, now) || p.avoid(v4, now) || !p.familyDead(false, now) || p.attemptDelay(v4) != 120*time.Millisecond || p.rank(v4) != -2 {
		t.Errorf("%+v", p)
	}
	// A new address of the dead family shares its fate; after a while all is tried again.
	if other := netip.MustParseAddr("2001:db8::2"); !p.avoid(other, now) || p.avoid(other, now.Add(remember)) || p.avoid(v6, now.Add(remember)) {
		t.Error("the family")
	}
	// A success ends it at once.
	h.record(1, "x", []outcome{{addr: v6, won: true, rtt: time.Millisecond}}, false, false, now)
	if p, _ = h.recall(1, "x"); p.avoid(v6, now) || p.familyDead(false, now) {
		t.Errorf("%+v", p)
	}
	// What a dial learned on another network is not recorded here, and a change
	// of the network empties everything.
	h.record(2, "y", []outcome{{addr: v6, won: true}}, false, false, now)
	if _, ok := h.recall(1, "y"); ok {
		t.Error("recorded from another network")
	}
	if _, ok := h.recall(2, "x"); ok {
		t.Error("kept across networks")
	}
	for i := range 2 * maxPlaces {
		h.record(2, fmt.Sprint(i), []outcome{{addr: v6, won: true}}, false, false, now)
	}
	for i := range 2 * maxPerPlace {
		h.record(2, "z", []outcome{{addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), won: true}}, false, false, now)
	}
	if p, _ := h.recall(2, "z"); len(h.places) > maxPlaces || len(p.addrs) > maxPerPlace {
		t.Errorf("%d places, %d addresses", len(h.places), len(p.addrs))
	}
}
