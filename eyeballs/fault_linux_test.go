package eyeballs

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/eyeballstest"
	"github.com/weirnet/weir/internal/nstest"
)

// insideVar is set when the test runs again inside a namespace. Its value is the kind of host.
const insideVar = "WEIR_EYEBALLS_HOST"

// TestFaults plays every scenario on a simulated network in new namespaces, one for each kind of
// host.
func TestFaults(t *testing.T) {
	if host := os.Getenv(insideVar); host != "" {
		faultsInside(t, eyeballstest.Family(host[0]-'0'))
		return
	}
	nstest.RequireRoot(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		if os.Getenv("WEIR_CI") == "1" {
			t.Fatal("no /dev/net/tun:", err)
		}
		t.Skip("SKIPPED, no /dev/net/tun:", err)
	}
	for host, name := range []string{"dual stack", "IPv4 only", "IPv6 only"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := eyeballstest.Inside(fmt.Sprintf("%s=%d", insideVar, host), &out,
				"-test.run=^TestFaults$", "-test.v", "-test.parallel=8"); err != nil {
				t.Errorf("%v\n%s", err, out.String())
			}
			if !strings.Contains(out.String(), "--- PASS: TestFaults") {
				t.Errorf("it did not pass:\n%s", out.String())
			}
		})
	}
}

// slack is what a busy machine may add to a time; the benchmark allows less.
const slack = 150 * time.Millisecond

func faultsInside(t *testing.T, host eyeballstest.Family) {
	n, err := eyeballstest.NewNet(host != eyeballstest.OnlyV6, host != eyeballstest.OnlyV4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	server, err := eyeballstest.NewDNS("127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	if err := eyeballstest.Etc(map[string]string{"resolv.conf": "nameserver 127.0.0.1\n",
		"hosts": "", "nsswitch.conf": "hosts: files dns\n"}); err != nil {
		t.Fatal(err)
	}
	plain := listen(t, locals(n)...)
	secure := listenTLS(t, locals(n)...)
	if host == eyeballstest.OnlyV6 {
		t.Run("IPv4 literal through NAT64", func(t *testing.T) {
			literalThroughNAT64(t, n, server, plain)
		})
	}
	for i, s := range eyeballstest.Scenarios() {
		if s.Host != host {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel() // the scenarios mostly wait
			try := 0
			eyeballstest.Retry(t, func() error {
				name := s.SetUp(n, server, i+try*100, plain, secure)
				try++
				return playFault(t, &s, name)
			})
			if s.Name == "both ok" { // the preferred family is fast: no other SYN
				serial := i + (try-1)*100
				if syns := n.SYNs(netip.AddrFrom4([4]byte{203, byte(serial >> 8), byte(serial),
					1})); syns != 0 {
					t.Errorf("%d SYNs to the other family", syns)
				}
			}
		})
	}
}

// literalThroughNAT64 checks that a host without IPv4 reaches an IPv4 literal through the NAT64
// (HEv3 section 8).
func literalThroughNAT64(t *testing.T, n *eyeballstest.Net, server *eyeballstest.DNS, port uint16) {
	server.Set("ipv4only.arpa", typeAAAA,
		eyeballstest.Record{TTL: 60, Addrs: ip("64:ff9b::c000:aa", "64:ff9b::c000:ab")})
	through := netip.MustParseAddrPort("[64:ff9b::cb00:7109]:443")
	n.Set(through.Addr(), eyeballstest.Host{Mode: eyeballstest.Accept, Port: port})
	var events []Event
	for _, d := range []*Dialer{
		{Timeout: 5 * time.Second, DNS: &dns.Resolver{}},
		{Timeout: 5 * time.Second, NAT64: eyeballstest.Prefix64, Trace: func(e Event) {
			events = append(events, e)
		}},
	} {
		c, err := d.Dial("tcp", "203.0.113.9:443")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.RemoteAddr().String(); got != through.String() {
			t.Errorf("reached %s", got)
		}
		c.Close()
	}
	if len(events) != 4 || events[3].Kind != EventWon || events[3].Addr != through {
		t.Errorf("events %+v", events)
	}
	// tcp4 means IPv4.
	if c, err := (&Dialer{NAT64: eyeballstest.Prefix64}).Dial("tcp4",
		"203.0.113.9:443"); err == nil {
		c.Close()
		t.Error("tcp4 reached something on a host without IPv4")
	}
}

// playFault dials a staged scenario. The dial must take the prescribed time, and the right family
// must win.
func playFault(t *testing.T, s *eyeballstest.Scenario, name string) error {
	d := &Dialer{Timeout: 10 * time.Second, DNS: &dns.Resolver{}, History: &History{}}
	if s.TLS {
		d.TLS = &tls.Config{InsecureSkipVerify: true}
	}
	rounds := 1
	if s.Again {
		rounds = 2
	}
	for round := range rounds {
		begin := time.Now()
		c, err := d.DialContext(context.Background(), "tcp", net.JoinHostPort(name, "443"))
		took := time.Since(begin)
		if err != nil {
			t.Fatalf("after %v: %v", took, err)
		}
		c.Close()
		if round < rounds-1 {
			continue
		}
		won := netip.MustParseAddrPort(c.RemoteAddr().String())
		if won.Addr().Is4() != (s.Want == 4) || took < s.Prescribed-ms ||
			took > s.Prescribed+slack {
			return fmt.Errorf("%v won after %v, prescribed are %v", won, took, s.Prescribed)
		}
	}
	return nil
}

const ms = time.Millisecond

func locals(n *eyeballstest.Net) (list []string) {
	for _, a := range []netip.Addr{n.Local4, n.Local6} {
		if a.IsValid() {
			list = append(list, a.String())
		}
	}
	return list
}

// listenTLS is listen with a TLS server. Its certificate is not trustworthy.
func listenTLS(t *testing.T, addrs ...string) (port uint16) {
	t.Helper()
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS() // for its certificate only
	config := &tls.Config{Certificates: cert.TLS.Certificates}
	cert.Close()
	for _, a := range addrs {
		l, err := tls.Listen("tcp", net.JoinHostPort(a, fmt.Sprint(port)), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		port = netip.MustParseAddrPort(l.Addr().String()).Port()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go c.(*tls.Conn).Handshake()
			}
		}()
	}
	return port
}
