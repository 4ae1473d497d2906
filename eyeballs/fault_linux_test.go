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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/eyeballstest"
	"github.com/weirnet/weir/eyeballs/internal/race"
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
			playFault(t, n, &s, s.SetUp(n, server, i, plain, secure))
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
		{Timeout: testTimeout, DNS: &dns.Resolver{}},
		{Timeout: testTimeout, NAT64: eyeballstest.Prefix64, Trace: func(e Event) {
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

// playFault dials a scenario that is set up. The attempts must come in the prescribed order and not
// before their time, and only hosts that an attempt went to get a SYN. How long after its time an
// attempt comes is up to the machine: bench-dial measures that.
func playFault(t *testing.T, n *eyeballstest.Net, s *eyeballstest.Scenario, name string) {
	var events []Event
	d := &Dialer{Timeout: testTimeout, DNS: &dns.Resolver{}, History: &History{},
		Trace: func(e Event) { events = append(events, e) }}
	if s.TLS {
		d.TLS = &tls.Config{InsecureSkipVerify: true}
	}
	won := dialFault(t, d, s, name)
	if problem := attemptOrder(s, d.Timeout, events); problem != "" {
		t.Errorf("%s\n%s", problem, traceText(events))
	}
	if s.Again { // what won before comes first
		events = nil
		again := dialFault(t, d, s, name)
		i := slices.IndexFunc(events, func(e Event) bool { return e.Kind == EventConnecting })
		if again != won || events[i].Addr != won {
			t.Errorf("%v won, %v the second time:\n%s", won, again, traceText(events))
		}
	}
	if s.Name == "both ok" && won.Addr().Is6() &&
		!slices.ContainsFunc(events, func(e Event) bool {
			return e.Kind == EventConnecting && e.Addr.Addr().Is4()
		}) {
		i := slices.IndexFunc(events, func(e Event) bool {
			return e.Kind == EventAnswered && e.Types == dns.A && e.Err == nil
		})
		if i >= 0 && n.SYNs(events[i].Addrs[0]) != 0 {
			t.Errorf("SYNs without an attempt:\n%s", traceText(events))
		}
	}
}

// dialFault dials and returns the address that won, which must have the only family that can, if
// there is one.
func dialFault(t *testing.T, d *Dialer, s *eyeballstest.Scenario, name string) netip.AddrPort {
	t.Helper()
	c, err := d.DialContext(context.Background(), "tcp", net.JoinHostPort(name, "443"))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	won := netip.MustParseAddrPort(c.RemoteAddr().String())
	other, answer := s.V4, s.A
	if s.Want == 4 {
		other, answer = s.V6, s.AAAA
	}
	canWin := !s.NAT64 && answer.Lose >= 0 && answer.RCode == 0 &&
		slices.ContainsFunc(other, func(h eyeballstest.Host) bool {
			return h.Mode == eyeballstest.Accept
		})
	if !canWin && won.Addr().Is4() != (s.Want == 4) {
		t.Errorf("%v won", won)
	}
	return won
}

// attemptOrder returns what is wrong with the attempts of a dial without history; "" is nothing. Of
// the known addresses the families take turns, IPv6 first. IPv4 is first only if IPv6 has no
// address, or no answer in the Resolution Delay. A Connection Attempt Delay passes after each
// attempt that does not fail.
func attemptOrder(s *eyeballstest.Scenario, limit time.Duration, events []Event) string {
	answered := map[dns.Type]bool{}
	var known4, known6, tried4, tried6, failed int
	for _, e := range events {
		switch e.Kind {
		case EventAnswered:
			answered[e.Types] = true
			switch e.Types {
			case dns.A:
				known4 = len(e.Addrs)
			case dns.AAAA:
				known6 = len(e.Addrs)
			}
		case EventFailed:
			failed++
		case EventConnecting:
			if s.NAT64 { // an answer of IPv4 becomes an address of IPv6
				continue
			}
			is4, i := e.Addr.Addr().Is4(), tried4+tried6
			want6 := tried6 < known6 && (tried4 >= known4 || tried6 <= tried4)
			if is4 == want6 {
				return fmt.Sprintf("%v is not the next of the known addresses", e.Addr)
			}
			if i == 0 && is4 && !answered[dns.AAAA] && e.At < race.ResolutionDelay {
				return fmt.Sprintf("%v did not wait for IPv6", e.Addr)
			}
			gap := min(race.AttemptDelay, (limit-e.At)/time.Duration(len(s.V4)+len(s.V6)+2))
			if e.At < time.Duration(i-failed)*gap {
				return fmt.Sprintf("%v is early", e.Addr)
			}
			if is4 {
				tried4++
			} else {
				tried6++
			}
		}
	}
	return ""
}

// traceText shows the events of a dial, a line each.
func traceText(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%v %v %d %v %v %v %v\n", e.At, e.Kind, e.Attempt, e.Addr, e.Types, e.Addrs,
			e.Err)
	}
	return b.String()
}

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
