package eyeballs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/eyeballstest"
	"github.com/weirnet/weir/eyeballs/internal/race"
)

func TestDialPrefersIPv6AndSendsNoOtherSYN(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	f.dns.Set("host.test", typeA,
		eyeballstest.Record{Addrs: ip("127.0.0.1"), Hold: f.answered(dns.AAAA)})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	f.dial("tcp", addr("host.test", port))
	f.begins("both answered", "::1", 0, race.AttemptDelay)
	q := f.dns.Queries() // a machine that stalls for a second asks again
	if len(q) < 2 || q[0] != "AAAA host.test" || q[1] != "A host.test" {
		t.Errorf("queries %q", q)
	}
}

func TestDialNetworks(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	for network, want := range map[string]string{"tcp4": "127.0.0.1", "udp4": "127.0.0.1",
		"tcp6": "::1", "udp6": "::1", "udp": "::1"} {
		f.reset()
		f.dial(network, addr("host.test", port))
		f.begins(network, want, 0, race.AttemptDelay)
		q := f.dns.Queries()
		if strings.HasSuffix(network, "4") && slices.Contains(q, "AAAA host.test") ||
			strings.HasSuffix(network, "6") && slices.Contains(q, "A host.test") {
			t.Errorf("%s: queries %q", network, q)
		}
	}
	f.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}
	f.reset()
	c, err := f.Dial("tcp", addr("host.test", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if local := c.LocalAddr().String(); !strings.HasPrefix(local, "127.0.0.9:") ||
		slices.Contains(f.dns.Queries(), "AAAA host.test") {
		t.Errorf("from %s", local)
	}
}

func TestDialRefusedContinuesAtOnce(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.5")
	f.dns.Set("host.test", typeA,
		eyeballstest.Record{Addrs: ip("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	got, _ := f.dial("tcp", addr("host.test", port))
	if failed := f.count(EventFailed) + f.count(EventCancelled); got.String() != "127.0.0.5" ||
		failed != 4 || f.count(EventFailed) == 0 {
		t.Errorf("reached %v after %d other attempts: %+v", got, failed, f.events)
	}
}

func TestDialD7SendsNoUselessQuery(t *testing.T) {
	f := newFixture(t, "127.0.0.1 both.test\n::1 both.test\n")
	port := listen(t, "127.0.0.1", "::1")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	f.setHost(true, false)
	got, _ := f.dial("tcp", addr("host.test", port))
	if q := slices.Compact(f.dns.Queries()); !got.Is4() || len(q) != 1 || q[0] != "A host.test" {
		t.Errorf("v4 host: reached %v, queries %q", got, q)
	}
	// The hosts file counts for both families: ::1 needs no route.
	f.reset()
	f.dial("tcp", addr("both.test", port))
	f.begins("hosts file", "::1", 0, race.AttemptDelay)
	f.setHost(false, true)
	f.dns.Set("host.test", typeA, eyeballstest.Record{Lose: -1})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: ip("::1")})
	f.reset()
	got, _ = f.dial("tcp", addr("host.test", port))
	if q := f.dns.Queries(); !got.Is6() || slices.Contains(q, "A host.test") {
		t.Errorf("v6 host: reached %v, queries %q", got, q)
	}
}

func TestDialAnswersLateOrLost(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	a := eyeballstest.Record{Addrs: ip("127.0.0.1")}
	aaaa := eyeballstest.Record{Addrs: ip("::1")}
	held := func(r eyeballstest.Record, until <-chan struct{}) eyeballstest.Record {
		r.Hold = until
		return r
	}
	lost := func(r eyeballstest.Record, n int) eyeballstest.Record { r.Lose = n; return r }
	never := make(chan struct{})
	for name, tt := range map[string]struct {
		a, aaaa eyeballstest.Record
		want    string
		wait    time.Duration
		least   time.Duration // of the whole dial
	}{
		"AAAA late":      {a, held(aaaa, never), "127.0.0.1", race.ResolutionDelay, 0},
		"A late":         {held(a, never), aaaa, "::1", 0, 0},
		"AAAA lost":      {a, lost(aaaa, -1), "127.0.0.1", race.ResolutionDelay, 0},
		"A lost":         {lost(a, -1), aaaa, "::1", 0, 0},
		"both lost once": {lost(a, 1), lost(aaaa, 1), "::1", 0, 990 * time.Millisecond},
		"AAAA fails": {a, eyeballstest.Record{RCode: dnsmessage.RCodeServerFailure}, "127.0.0.1",
			0, 0},
	} {
		f.dns.Clear()
		f.reset()
		if name == "both lost once" { // so that a machine that stalls does not decide
			tt.a.Hold = f.answered(dns.AAAA)
		}
		f.dns.Set("host.test", typeA, tt.a)
		f.dns.Set("host.test", typeAAAA, tt.aaaa)
		if _, took := f.dial("tcp", addr("host.test", port)); took < tt.least {
			t.Errorf("%s: %v", name, took)
		}
		f.begins(name, tt.want, tt.wait, race.AttemptDelay)
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
	for _, want := range []string{"[::1]:", "127.0.0.2:", "127.0.0.3:", "connect",
		"connection refused", "all 3 attempts failed"} {
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
	if took := time.Since(begin); took < f.Timeout {
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
			if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to,
				"socket:") {
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
	for range 30_000 { // for the echo server
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
	waits := func() (v6, v4 bool) {
		e, _ := f.History.lookup(f.History.views.get().id, addr("host.test", port))
		return e.waitFor(false, time.Now()), e.waitFor(true, time.Now())
	}
	if _, took := f.dial("tcp", addr("host.test", port)); took < race.ResolutionDelay {
		t.Errorf("the first dial took %v", took)
	}
	if v6, v4 := waits(); v6 || !v4 {
		t.Errorf("the second dial waits for IPv6 %v, for IPv4 %v", v6, v4)
	}
	if got, _ := f.dial("tcp", addr("host.test", port)); !got.Is4() {
		t.Errorf("the second dial reached %v", got)
	}
	// On another network nothing of this holds (S3).
	f.setHost(true, true).id = 8
	if _, took := f.dial("tcp", addr("host.test", port)); took < 50*time.Millisecond {
		t.Errorf("the dial on another network took %v", took)
	}
}

func TestDialNAT64(t *testing.T) {
	// There is no NAT64 on loopback. The attempts show which addresses the dialer made.
	f := newFixture(t, "")
	f.setHost(false, true)
	refused := errors.New("refused")
	f.ControlContext = func(context.Context, string, string, syscall.RawConn) error {
		return refused
	}
	f.dns.Set("ipv4only.arpa", typeAAAA, eyeballstest.Record{Addrs: ip("64:ff9b:1::c000:aa")})
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("192.0.2.1")})
	_, err := f.Dial("tcp", "host.test:80")
	var all *Error
	if !errors.As(err, &all) || len(all.Attempts) != 1 || !errors.Is(err, refused) ||
		all.Attempts[0].Addr.String() != "[64:ff9b:1::c000:201]:80" {
		t.Errorf("error %v", err)
	}
	// With a prefix in the configuration, no question about it is sent.
	f.reset()
	f.NAT64 = netip.MustParsePrefix("2001:db8:64::/96")
	_, err = f.Dial("tcp", "host.test:80")
	if !errors.As(err, &all) || len(all.Attempts) != 1 ||
		all.Attempts[0].Addr.String() != "[2001:db8:64::c000:201]:80" {
		t.Errorf("error %v", err)
	}
	q := f.dns.Queries()
	if slices.Contains(q, "AAAA ipv4only.arpa") || !slices.Contains(q, "A host.test") {
		t.Errorf("queries %q", q)
	}
}

func TestDialIDNA(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1")
	f.dns.Set("xn--bcher-kva.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1")})
	if got, _ := f.dial("tcp4", addr("B\u00fccher.test", port)); !got.Is4() {
		t.Errorf("reached %v", got)
	}
	if _, err := f.Dial("tcp", "a\u2028b.test:80"); err == nil ||
		!strings.Contains(err.Error(), "not a domain name") {
		t.Errorf("error %v", err)
	}
}

func TestDialPort(t *testing.T) {
	f := newFixture(t, "127.0.0.1 host.test\n")
	if _, err := f.Dial("tcp", "host.test:70000"); err == nil ||
		!strings.Contains(err.Error(), "port") {
		t.Errorf("error %v", err)
	}
	if _, err := f.Dial("tcp4", "host.test:tcpmux"); err == nil ||
		!strings.Contains(err.Error(), ":1:") {
		t.Errorf("a service name: %v", err)
	}
}

func TestD11PreferredFamily(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")
	for _, tt := range []struct {
		route4, route6 netip.Addr
		v4, v6, want   bool
	}{
		{v4, v6, true, true, false},
		{v4, netip.Addr{}, true, true, true},
		{netip.Addr{}, v6, true, true, false},
		{netip.Addr{}, netip.Addr{}, true, true, false},
		{netip.Addr{}, netip.Addr{}, true, false, true},
	} {
		v := &hostView{v4: tt.v4, v6: tt.v6, route4: tt.route4, route6: tt.route6}
		if got := v.preferV4(); got != tt.want {
			t.Errorf("%+v: IPv4 preferred: %v", tt, got)
		}
	}
	// On a host whose only default route is for IPv4, its answer starts the race.
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1")})
	f.dns.Set("host.test", typeAAAA,
		eyeballstest.Record{Addrs: ip("::1"), Hold: f.answered(dns.A)})
	f.setHost(true, true).route6 = netip.Addr{}
	f.dial("tcp", addr("host.test", port))
	f.begins("IPv4 preferred", "127.0.0.1", 0, race.AttemptDelay)
}

// TestLocalAddr: the unspecified address of either family allows both families, and any other
// address only its own.
func TestLocalAddr(t *testing.T) {
	for _, c := range []struct {
		network, local string
		want           dns.Type
	}{
		{"tcp", "0.0.0.0:0", dns.A | dns.AAAA}, {"tcp", "[::]:0", dns.A | dns.AAAA},
		{"tcp", "127.0.0.1:0", dns.A}, {"tcp", "[::1]:0", dns.AAAA},
		{"tcp6", "127.0.0.1:0", 0}, {"tcp4", "[::1]:0", 0}, {"tcp4", "0.0.0.0:0", dns.A},
	} {
		d := &Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.local)),
			DNS: &dns.Resolver{Dir: t.TempDir()}, History: &History{}}
		r := newRun(context.Background(), d,
			target{network: c.network, address: "host.test:1", host: "host.test", port: 1})
		r.cancel()
		cfg := race.Config{}
		r.view.v4, r.view.v6 = true, true
		if r.chooseTypes(&cfg); cfg.Types != c.want {
			t.Errorf("%s from %s queries %v, want %v", c.network, c.local, cfg.Types, c.want)
		}
		if a, ok := r.plain.LocalAddr.(*net.TCPAddr); !ok || a.IP != nil && a.IP.IsUnspecified() {
			t.Errorf("%s is bound to %v", c.local, r.plain.LocalAddr)
		}
	}
}

// TestAbsentFamilyIsNotACause: if a name has no IPv6 address, the refusal of its IPv4 address does
// not look like a missing name.
func TestAbsentFamilyIsNotACause(t *testing.T) {
	refused := &Error{Attempts: []Attempt{{Err: syscall.ECONNREFUSED}},
		Lookups: []Lookup{{Err: &net.DNSError{IsNotFound: true}}}}
	var d *net.DNSError
	if errors.As(refused, &d) || !errors.Is(refused, syscall.ECONNREFUSED) {
		t.Errorf("%v is %v", refused, d)
	}
	if none := (&Error{Lookups: refused.Lookups}); !errors.As(none, &d) || !d.IsNotFound {
		t.Error("a name without any address counts as found")
	}
}
