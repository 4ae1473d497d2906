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
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/eyeballstest"
	"github.com/weirnet/weir/internal/nstest"
)

// insideVar tells the test, run again, which host it is.
const insideVar = "WEIR_EYEBALLS_HOST"

// TestFaults plays every scenario on a simulated network, in namespaces of its
// own: one for each kind of host.
func TestFaults(t *testing.T) {
	if host := os.Getenv(insideVar); host != "" {
		faultsInside(t, eyeballstest.Family(host[0]-'0'))
		return
	}
	nstest.Root(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		if os.Getenv("WEIR_CI") == "1" {
			t.Fatal("no /dev/net/tun:", err)
		}
		t.Skip("SKIPPED, no /dev/net/tun:", err)
	}
	for host, name := range []string{"dual stack", "IPv4 only", "IPv6 only"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playUntilQuiet(t, fmt.Sprintf("%s=%d", insideVar, host))
		})
	}
}

// playUntilQuiet plays all scenarios of a host, and up to two more times those that failed: they measure time, and a machine that
// stalls at the wrong moment makes a good dialer late. A bad one is late every time.
func playUntilQuiet(t *testing.T, host string) {
	t.Helper()
	scenarios := "^TestFaults$"
	for attempt := 1; ; attempt++ {
		var out bytes.Buffer
		err := eyeballstest.Inside(host, &out, "-test.run="+scenarios, "-test.v", "-test.parallel=64")
		if err == nil && strings.Contains(out.String(), "--- PASS: TestFaults") {
			return
		}
		failed := failedScenarios(out.String())
		if attempt == 3 || len(failed) == 0 {
			t.Fatalf("attempt %d: %v\n%s", attempt, err, out.String())
		}
		t.Logf("attempt %d failed: %q", attempt, failed)
		for i, name := range failed {
			failed[i] = regexp.QuoteMeta(name)
		}
		scenarios = "^TestFaults$/^(" + strings.Join(failed, "|") + ")$"
	}
}

// failedScenarios reads from a test's output which subtests failed.
func failedScenarios(out string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)--- FAIL: TestFaults/(.*) \([0-9.]+s\)$`).FindAllStringSubmatch(out, -1) {
		names = append(names, m[1])
	}
	return names
}

// slack is what a busy machine may add to a time; the benchmark holds it to less.
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
	if err := eyeballstest.Etc(map[string]string{"resolv.conf": "nameserver 127.0.0.1\n", "hosts": "", "nsswitch.conf": "hosts: files dns\n"}); err != nil {
		t.Fatal(err)
	}
	plain := listen(t, locals(n)...)
	secure := listenTLS(t, locals(n)...)
	for i, s := range eyeballstest.Scenarios() {
		if s.Host != host {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			name := s.Stage(n, server, i, plain, secure)
			d := &Dialer{Timeout: 10 * time.Second, Resolver: &dns.Resolver{}, History: &History{}}
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
				defer c.Close()
				won := netip.MustParseAddrPort(c.RemoteAddr().String())
				if won.Addr().Is4() != (s.Want == 4) {
					t.Errorf("%v won", won)
				}
				if last := round == rounds-1; last && (took < s.Prescribed-ms || took > s.Prescribed+slack) {
					t.Errorf("took %v, prescribed are %v", took, s.Prescribed)
				}
				if s.Name == "both ok" { // the first is fast: nothing else is sent
					for serial := range 2 {
						if syns := n.SYNs(netip.AddrFrom4([4]byte{203, 0, byte(i), byte(serial + 1)})); syns != 0 {
							t.Errorf("%d SYNs to the other family", syns)
						}
					}
				}
			}
		})
	}
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

// listenTLS is listen with a TLS server, whose certificate nobody should trust.
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
