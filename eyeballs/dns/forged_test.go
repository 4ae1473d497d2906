package dns

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

// TestGuessesLeadToTCP: after ten answers with wrong ids, datagrams do not count any more.
func TestGuessesLeadToTCP(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	// The last of the datagrams is the right one: it comes too late.
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), Guess: 50})
	got, _ := lookup(t, r, "host.test", A)
	wantAddrs(t, got[A], "192.0.2.1")
	if q := d.Queries(); len(q)-int(r.Stats().Resent) > 2 || len(q) < 2 ||
		q[0] != "A host.test" || q[1] != q[0] {
		t.Errorf("queries %q: want one over UDP and one over TCP", q)
	}
	if s := r.Stats(); s.Bogus < maxBogus {
		t.Errorf("stats %+v", s)
	}
	// Without TCP there is no answer. The datagram may be a guess.
	d.Set("guessed.test", typeA,
		eyeballstest.Record{Addrs: addrs("192.0.2.66"), Guess: 50, NoTCP: true})
	got, _ = lookup(t, r, "guessed.test", A)
	if got[A].Err == nil {
		t.Errorf("accepted %v", got[A].Addrs)
	}
}

// TestServerChangesCases: questions to such a server go over TCP. If it has no TCP, any letter case
// counts.
func TestServerChangesCases(t *testing.T) {
	for _, noTCP := range []bool{false, true} {
		d := startDNS(t)
		d.Set("a-long-name-with-many-letters.test", typeA,
			eyeballstest.Record{Addrs: addrs("192.0.2.1"), MixCase: true, NoTCP: noTCP})
		d.Set("a-long-name-with-many-letters.test", typeAAAA,
			eyeballstest.Record{Addrs: addrs("2001:db8::1"), MixCase: true, NoTCP: noTCP})
		r := etc(t, map[string]string{}, d)
		r.resend = time.Hour // an answer needs no second transmission
		got, _ := lookup(t, r, "a-long-name-with-many-letters.test", both)
		wantAddrs(t, got[A], "192.0.2.1")
		wantAddrs(t, got[AAAA], "2001:db8::1")
	}
}

// seen is a question that a server received.
type seen struct {
	from netip.AddrPort
	id   uint16
	name string
	t    dnsmessage.Type
}

// silent starts a server that reports questions and answers none.
func silent(t *testing.T) (netip.AddrPort, <-chan seen) {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	got := make(chan seen)
	go func() {
		for b := make([]byte, 1500); ; {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) == nil {
				select {
				case got <- seen{from, m.ID, m.Questions[0].Name.String(), m.Questions[0].Type}:
				case <-t.Context().Done():
					return
				}
			}
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort(), got
}

// TestEachTransmissionDiffers: a question that is sent again has a new port, new ids and new letter
// cases, and AAAA goes before A.
func TestEachTransmissionDiffers(t *testing.T) {
	addr, got := silent(t)
	r := etc(t, map[string]string{"resolv.conf": "nameserver [" + addr.Addr().String() + "]:" +
		portText(addr) + "\noptions timeout:30 attempts:5\n"})
	r.resend = time.Millisecond
	const name = "a-long-name-with-very-many-letters-of-its-own.test"
	ports, ids, names := map[uint16]bool{}, map[uint16]bool{}, map[string]bool{}
	var all []seen
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Query(ctx, name, both, func(a Answer) { t.Errorf("answered %+v", a) })
	}()
	for range 8 { // so many ids are not equal by chance
		s := <-got
		all = append(all, s)
		ports[s.from.Port()], ids[s.id], names[s.name] = true, true, true
		if !strings.EqualFold(s.name, name+".") {
			t.Errorf("question about %s", s.name)
		}
	}
	cancel()
	<-ended
	first := map[uint16]bool{} // of a transmission
	for i := 0; i < len(all); i += 2 {
		if all[i].t != typeAAAA || all[i+1].t != typeA {
			t.Errorf("%v was sent before %v", all[i].t, all[i+1].t)
		}
		first[all[i].id] = true
	}
	if len(first) < 2 {
		t.Errorf("each transmission begins with the id %d", all[0].id)
	}
	if len(ports) != len(all)/2 || len(ids) < len(all)-1 || len(names) != len(all) {
		t.Errorf("%d questions from %d ports with %d ids and %d spellings", len(all), len(ports),
			len(ids), len(names))
	}
}

func portText(a netip.AddrPort) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

// TestTTLIsBounded: a forged answer does not stay for weeks, and a TTL with the highest bit set
// counts as 0.
func TestTTLIsBounded(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	d.Set("long.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), TTL: 1 << 30})
	d.Set("negative.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), TTL: 1 << 31})
	for name, want := range map[string]time.Duration{"long.test": maxTTL, "negative.test": 0} {
		got, _ := lookup(t, r, name, A)
		if a := got[A]; a.TTL != want || len(a.Addrs) != 1 {
			t.Errorf("%s: TTL %v, want %v", name, a.TTL, want)
		}
	}
}

// TestForgedPrefix: a NAT64 prefix of the network's own counts only from TCP.
func TestForgedPrefix(t *testing.T) {
	for _, c := range []struct {
		addr    string
		noTCP   bool
		queries int
		want    string // of the prefixes
	}{
		{"64:ff9b::192.0.0.170", true, 1, "64:ff9b::/96"},
		{"2001:db8:64::192.0.0.170", false, 2, "2001:db8:64::/96"},
		{"2001:db8:bad::192.0.0.170", true, 2, ""},
	} {
		d := startDNS(t)
		r := etc(t, map[string]string{}, d)
		r.resend = time.Hour // an answer needs no second transmission
		d.Set("ipv4only.arpa", typeAAAA, eyeballstest.Record{Addrs: addrs(c.addr), NoTCP: c.noTCP})
		got, _ := lookup(t, r, "host.test", Prefix64)
		text := ""
		for _, p := range got[Prefix64].Prefixes {
			text += p.String()
		}
		if q := d.Queries(); text != c.want || len(q) != c.queries {
			t.Errorf("%s: %q after %q, want %q", c.addr, text, q, c.want)
		}
	}
}

// TestNotADomainName: a name that is not a domain name does not exist, and is not sent to a server.
func TestNotADomainName(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	for _, name := range []string{"127.1", "256.1.1.1", "1.2.3.4.5", " localhost", "localhost%lo",
		"-a", "a-.test", "\x00", "a\nb", "a..b", strings.Repeat("a", 64) + ".test"} {
		got, _ := lookup(t, r, name, A)
		if !isNotFound(got[A].Err) {
			t.Errorf("%q: %v", name, got[A].Err)
		}
	}
	if q := d.Queries(); len(q) > 0 {
		t.Errorf("queries %q", q)
	}
	for _, name := range []string{"a", "_dns._udp.host.test", "3com.test", "a--b.test",
		"1.2.3.4.in-addr.arpa", "x1"} {
		if _, err := wireName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestLinesAreCut: a line of any length does not end the reading.
func TestLinesAreCut(t *testing.T) {
	long := "# " + strings.Repeat("x", 1<<17) + "\n"
	if h := parseHosts(strings.NewReader(long +
		"192.0.2.1 host.test\n")); h.find("host.test") == nil {
		t.Error("hosts ends at a long line")
	}
	c := ParseConfig(strings.NewReader(long+"nameserver 192.0.2.53\n"), "")
	if len(c.Servers) != 1 || c.Servers[0].Addr() != netip.MustParseAddr("192.0.2.53") {
		t.Errorf("servers %v", c.Servers)
	}
}
