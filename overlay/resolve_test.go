package overlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/eyeballstest"
	"github.com/weirnet/weir/internal/nstest"
)

// nameServer starts a DNS server, and makes a resolver that queries it and reads a hosts file of
// its own.
func nameServer(t *testing.T, hosts string) (*eyeballstest.DNS, *dns.Resolver) {
	t.Helper()
	server, err := eyeballstest.NewDNS("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"resolv.conf": fmt.Sprintf("nameserver [127.0.0.1]:%d\n", server.Addr.Port()),
		"hosts":       hosts, "nsswitch.conf": "hosts: files dns\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(server.Close)
	return server, &dns.Resolver{Dir: dir}
}

// records are answers of one family.
func records(ttl uint32, addrs ...string) eyeballstest.Record {
	r := eyeballstest.Record{TTL: ttl}
	for _, a := range addrs {
		r.Addrs = append(r.Addrs, netip.MustParseAddr(a))
	}
	return r
}

func addrPorts(text ...string) (list []netip.AddrPort) {
	for _, a := range text {
		list = append(list, netip.MustParseAddrPort(a))
	}
	return list
}

// lookedUp looks names up, waits for all, and compares what is known then.
func lookedUp(t *testing.T, e *endpoints, want ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	err := e.lookUp(ctx, func() {})
	if got := e.list(); !slices.Equal(got, addrPorts(want...)) {
		t.Errorf("known are %v, want %v; %v", got, want, err)
	}
	return err
}

// TestEndpoints: addresses stand as they are, once; names become all their addresses, in their
// place, the families taking turns. The hosts file and the cache are believed.
func TestEndpoints(t *testing.T) {
	server, resolver := nameServer(t, "192.0.2.7 listed.example\n2001:db8::7 listed.example\n")
	server.Set("known.example", dnsmessage.TypeA, records(60, "192.0.2.8", "192.0.2.9"))
	server.Set("known.example", dnsmessage.TypeAAAA, records(60, "2001:db8::8"))
	e := newEndpoints(resolver, []string{"192.0.2.1:1", "listed.example:2", "[::ffff:192.0.2.1]:1",
		"known.example:4", "[2001:db8::1]:3"})
	if got := e.list(); !slices.Equal(got, addrPorts("192.0.2.1:1", "[2001:db8::1]:3")) {
		t.Errorf("without a look-up %v are known", got)
	}
	for round := range 2 {
		if err := lookedUp(t, e, "192.0.2.1:1", "[2001:db8::7]:2", "192.0.2.7:2", "[2001:db8::8]:4",
			"192.0.2.8:4", "192.0.2.9:4", "[2001:db8::1]:3"); err != nil {
			t.Error(err)
		}
		q := server.Queries() // the first ones twice, if the machine stalls for a second
		slices.Sort(q)
		want := [][]string{{"A known.example", "AAAA known.example"}, nil}[round]
		if q = slices.Compact(q); !slices.Equal(q, want) {
			t.Errorf("round %d: asked for %v, want %v", round, q, want)
		}
	}
}

// TestSlowNames: a name, or a family of one, without an answer does not delay the others.
func TestSlowNames(t *testing.T) {
	server, resolver := nameServer(t, "")
	lost := eyeballstest.Record{Lose: -1}
	server.Set("slow.example", dnsmessage.TypeA, lost)
	server.Set("slow.example", dnsmessage.TypeAAAA, lost)
	server.Set("half.example", dnsmessage.TypeA, records(60, "192.0.2.2"))
	server.Set("half.example", dnsmessage.TypeAAAA, lost)
	server.Set("quick.example", dnsmessage.TypeA, records(60, "192.0.2.3"))
	e := newEndpoints(resolver, []string{"slow.example:1", "half.example:1", "quick.example:1"})
	all := addrPorts("192.0.2.2:1", "192.0.2.3:1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := e.lookUp(ctx, func() {
		if slices.Equal(e.list(), all) {
			cancel() // the slow name is still looked up, or it is another error
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the slow name delays the others, of which %v are known: %v", e.list(), err)
	}
}

// TestNamesChange: new addresses take the place of old ones, also while another name is not to be
// found; a server that fails removes none.
func TestNamesChange(t *testing.T) {
	server, resolver := nameServer(t, "")
	server.Set("moves.example", dnsmessage.TypeA, records(0, "192.0.2.1"))
	server.Set("stays.example", dnsmessage.TypeA, records(0, "192.0.2.2"))
	e := newEndpoints(resolver, []string{"none.example:1", "moves.example:1", "stays.example:1"})
	if err := lookedUp(t, e, "192.0.2.1:1", "192.0.2.2:1"); err == nil {
		t.Error("a name that does not exist is not an error")
	}
	server.Set("moves.example", dnsmessage.TypeA, records(0, "192.0.2.9"))
	server.Set("stays.example", dnsmessage.TypeA,
		eyeballstest.Record{RCode: dnsmessage.RCodeServerFailure})
	lookedUp(t, e, "192.0.2.9:1", "192.0.2.2:1")
	server.Set("stays.example", dnsmessage.TypeA,
		eyeballstest.Record{RCode: dnsmessage.RCodeNameError})
	lookedUp(t, e, "192.0.2.9:1")
}

// TestNameComesLate: a peer is set without waiting for its name, and what is to be sent to it
// meanwhile begins a session as soon as the address is known. Nothing else of the device waits.
func TestNameComesLate(t *testing.T) {
	server, resolver := nameServer(t, "")
	late, hold := records(60, "10.98.0.2"), make(chan struct{})
	late.Hold = hold
	server.Set("late.example", dnsmessage.TypeA, late)
	server.Set("never.example", dnsmessage.TypeA, eyeballstest.Record{Lose: -1})
	a, b := pair(t, func(c *Config) { c.Resolver = resolver }, func(p *Peer) { p.Endpoints = nil })
	sink, err := b.ListenPacket("udp", b.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	c, err := a.DialContext(t.Context(), "udp", b.addr+":4000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := a.dev.SetPeer(Peer{Name: "b", Key: b.key.Public(),
		Endpoints: []string{"never.example:51820", "late.example:51820"},
		Pods:      prefixes("10.99.0.2/32")}); err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("early"))
	nstest.Eventually(t, "a handshake has nowhere to go", func() bool {
		return a.dev.Stats().Begun > 0
	})
	if list, err := a.dev.Peers(); err != nil || list[0].Path.IsValid() {
		t.Errorf("before the name is known: %+v, %v", list, err)
	}
	close(hold)
	sink.SetReadDeadline(time.Now().Add(testTimeout))
	buf := make([]byte, 10)
	if n, _, err := sink.ReadFrom(buf); err != nil || string(buf[:n]) != "early" {
		t.Errorf("%q came: %v", buf[:n], err)
	}
	// WireGuard begins another one after five seconds.
	if n := a.dev.Stats().Begun; n != 1 {
		t.Errorf("the session came with handshake %d", n)
	}
}

// TestNameOfManyAddrs: however many addresses a name has, few are candidates. Whatever goes to all
// endpoints of a silent peer would flood them.
func TestNameOfManyAddrs(t *testing.T) {
	server, resolver := nameServer(t, "")
	var four, six, want []string
	for i := range 100 {
		four = append(four, fmt.Sprintf("192.0.2.%d", i))
		six = append(six, fmt.Sprintf("2001:db8::%x", i))
	}
	for i := range 8 {
		want = append(want, "["+six[i]+"]:1", four[i]+":1")
	}
	server.Set("many.example", dnsmessage.TypeA, records(0, four...))
	server.Set("many.example", dnsmessage.TypeAAAA, records(0, six...))
	lookedUp(t, newEndpoints(resolver, []string{"many.example:1"}), want...)
}
