package eyeballs

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/eyeballstest"
	"github.com/weirnet/weir/eyeballs/internal/race"
)

const (
	typeA     = dnsmessage.TypeA
	typeAAAA  = dnsmessage.TypeAAAA
	typeHTTPS = dnsmessage.TypeHTTPS
)

// fixture is a dialer with its own resolver, history and DNS server. The dialer sees a host with
// IPv4 and IPv6.
type fixture struct {
	*Dialer
	t   *testing.T
	dns *eyeballstest.DNS

	mu     sync.Mutex
	events []Event
	known  map[dns.Type]chan struct{} // closed with the first answer of the type
}

// testTimeout is for what has to come, on however busy a machine.
const testTimeout = 5 * time.Minute

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
	f.Dialer = &Dialer{Timeout: testTimeout, DNS: &dns.Resolver{Dir: dir},
		History: &History{}}
	f.Trace = func(e Event) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = append(f.events, e)
		if c := f.known[e.Types]; e.Kind == EventAnswered && c != nil {
			close(c)
			delete(f.known, e.Types)
		}
	}
	f.setHost(true, true)
	return f
}

// setHost makes the dialer see a host with these families, whatever this one has.
func (f *fixture) setHost(v4, v6 bool) *hostView {
	v := &hostView{v4: v4, v6: v6, sources: map[netip.Addr]netip.Addr{},
		taken: time.Now().Add(time.Hour), id: 7}
	if v4 {
		v.route4 = netip.MustParseAddr("192.0.2.9")
	}
	if v6 {
		v.route6 = netip.MustParseAddr("2001:db8::9")
	}
	f.History.views = viewCache{view: v}
	return v
}

// answered returns a channel that is closed with the first answer of a type from now on.
func (f *fixture) answered(t dns.Type) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{})
	f.known = map[dns.Type]chan struct{}{t: c}
	return c
}

// begins checks how the dial since reset begins its attempts. The first is to the address, as long
// after the first answer as wait says. Others come behind it, at least delay after each other. So
// much holds on a machine that stalls, too; package race has tests of each time on a clock of its
// own.
func (f *fixture) begins(name string, with string, wait, delay time.Duration) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var attempts []Event
	answer := time.Duration(-1)
	for _, e := range f.events {
		switch {
		case e.Kind == EventConnecting:
			attempts = append(attempts, e)
		case e.Kind == EventAnswered && answer < 0:
			answer = e.At
		}
	}
	if len(attempts) == 0 || answer < 0 || attempts[0].Addr.Addr().String() != with ||
		attempts[0].At-answer < wait {
		f.t.Errorf("%s: want an attempt to %s after %v: %+v", name, with, wait, f.events)
		return
	}
	for i, e := range attempts[1:] {
		if e.At-attempts[i].At < delay {
			f.t.Errorf("%s: attempt %d begins after %v", name, i+1, e.At-attempts[i].At)
		}
	}
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

// reset forgets what was dialled: the next dial is the first.
func (f *fixture) reset() {
	f.History.Forget()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = nil
	f.dns.Queries()
}

// listen accepts connections on all addresses at one port, and echoes.
func listen(t *testing.T, addrs ...string) (port uint16) {
	t.Helper()
	for _, l := range listeners(t, addrs...) {
		port = l.Addr().(*net.TCPAddr).AddrPort().Port()
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

// listeners returns a listener on each address, all at one port, which the kernel chooses.
func listeners(t *testing.T, addrs ...string) (all []net.Listener) {
	t.Helper()
	for try := 0; ; try++ {
		port, all := "0", all
		var err error
		for _, a := range addrs {
			var l net.Listener
			if l, err = net.Listen("tcp", net.JoinHostPort(a, port)); err != nil {
				break
			}
			_, port, _ = net.SplitHostPort(l.Addr().String())
			all = append(all, l)
		}
		if err == nil {
			for _, l := range all {
				t.Cleanup(func() { l.Close() })
			}
			return all
		}
		for _, l := range all {
			l.Close()
		}
		if try == 20 { // another program has the port on one of them
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

// endpoints returns endpoints at port 1.
func endpoints(addrs []netip.Addr) (eps []race.Endpoint) {
	for _, a := range addrs {
		eps = append(eps, race.Endpoint{Addr: netip.AddrPortFrom(a, 1), Known: a})
	}
	return eps
}
