package dns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

func TestSearchAndNdots(t *testing.T) {
	d := startDNS(t)
	d.Set("db.corp.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1")})
	d.Set("db.corp.test", typeAAAA, eyeballstest.Record{})
	d.Set("a.b.lab.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.2")})
	conf := map[string]string{"resolv.conf": "search lab.test corp.test\noptions ndots:2\n"}
	r := etc(t, conf, d)
	got, _ := lookup(t, r, "db", both)
	wantAddrs(t, got[A], "192.0.2.1")
	if !isNotFound(got[AAAA].Err) || got[AAAA].NoName {
		t.Errorf("AAAA %+v", got[AAAA])
	}
	if q := asked(d, r); !slices.Equal(q,
		[]string{"AAAA db.lab.test", "A db.lab.test", "AAAA db.corp.test", "A db.corp.test"}) {
		t.Errorf("queries %q", q)
	}
	got, _ = lookup(t, r, "a.b", A)
	wantAddrs(t, got[A], "192.0.2.2")
	if q := asked(d, r); q[0] != "A a.b.lab.test" {
		t.Errorf("one dot is less than ndots: queries %q", q)
	}
	got, _ = lookup(t, r, "none.at.all", A)
	if q := asked(d, r); len(q) != 3 || q[0] != "A none.at.all" || !got[A].NoName {
		t.Errorf("two dots reach ndots: queries %q, got %+v", q, got)
	}
	lookup(t, r, "db.corp.test.", A)
	if q := asked(d, r); !slices.Equal(q, []string{"A db.corp.test"}) {
		t.Errorf("rooted: queries %q", q)
	}
	// A server that fails for one name does not make the host nonexistent.
	d.Set("x.lab.test", typeA, eyeballstest.Record{RCode: dnsmessage.RCodeServerFailure})
	got, _ = lookup(t, r, "x", A)
	if isNotFound(got[A].Err) {
		t.Errorf("a failure was taken for absence: %v", got[A].Err)
	}
}

func TestHostsFile(t *testing.T) {
	d := startDNS(t)
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.66")})
	r := etc(t, map[string]string{"hosts": "# comment\n192.0.2.1 Host.test alias # more\n" +
		"2001:db8::1 host.test\n192.0.2.2 host.test\nbad host.test\n"}, d)
	got, _ := lookup(t, r, "HOST.test", both|HTTPS)
	wantAddrs(t, got[A], "192.0.2.1", "192.0.2.2")
	wantAddrs(t, got[AAAA], "2001:db8::1")
	if got[A].From != "hosts" || len(d.Queries()) != 0 {
		t.Errorf("from %s", got[A].From)
	}
	got, _ = lookup(t, r, "localhost", both)
	wantAddrs(t, got[A], "127.0.0.1")
	wantAddrs(t, got[AAAA], "::1")
	got, _ = lookup(t, r, "x.onion", A)
	if len(d.Queries()) != 0 || got[A].Err == nil {
		t.Error("queried DNS for localhost or .onion")
	}
}

func TestNsswitchOrder(t *testing.T) {
	d := startDNS(t)
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.66")})
	hosts := "192.0.2.1 host.test\n192.0.2.2 only.test\n"
	r := etc(t, map[string]string{"hosts": hosts, "nsswitch.conf": "hosts: dns files\n"}, d)
	got, _ := lookup(t, r, "host.test", A)
	wantAddrs(t, got[A], "192.0.2.66")
	got, _ = lookup(t, r, "only.test", both)
	wantAddrs(t, got[A], "192.0.2.2")
	r = etc(t, map[string]string{"hosts": hosts,
		"nsswitch.conf": "hosts: dns [NOTFOUND=return] files\n"}, d)
	if got, _ = lookup(t, r, "only.test", A); got[A].Err == nil {
		t.Error("NOTFOUND=return did not return")
	}
	for line, want := range map[string][]source{
		"files dns": {fromFiles, fromDNS},
		"mymachines resolve [!UNAVAIL=return] files myhostname dns": {fromFiles, fromDNS},
		"files mdns4_minimal [NOTFOUND=return] dns":                 {fromFiles, fromDNS},
		"files ldap dns": {fromFiles, fromSystem, fromDNS},
		"":               defaultOrder,
	} {
		if got := sources(line); !slices.Equal(got, want) {
			t.Errorf("%q: %v want %v", line, got, want)
		}
	}
}

// TestLocalhostStays: no server is asked for localhost, wherever nsswitch.conf puts DNS.
func TestLocalhostStays(t *testing.T) {
	d := startDNS(t)
	for _, name := range []string{"localhost", "x.localhost", "localhost.corp.test"} {
		d.Set(name, typeA, eyeballstest.Record{Addrs: addrs("192.0.2.66")})
	}
	r := etc(t, map[string]string{"hosts": "", "resolv.conf": "search corp.test\n",
		"nsswitch.conf": "hosts: dns files\n"}, d)
	for _, name := range []string{"localhost", "x.localhost", "LocalHost."} {
		got, _ := lookup(t, r, name, A)
		wantAddrs(t, got[A], "127.0.0.1")
	}
	if q := d.Queries(); len(q) != 0 {
		t.Errorf("queries %q", q)
	}
}

func TestCache(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), TTL: 60})
	d.Set("brief.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.2"), TTL: 0})
	for range 2 {
		got, _ := lookup(t, r, "host.test", A)
		wantAddrs(t, got[A], "192.0.2.1")
		got, _ = lookup(t, r, "brief.test", A)
		wantAddrs(t, got[A], "192.0.2.2")
		lookup(t, r, "none.test", A)
	}
	again := func() int { return int(r.Stats().Resent) } // each time one question
	// host 1, brief 2, none 2 (its SOA says 0)
	if q := d.Queries(); len(q)-again() != 5 {
		t.Errorf("queries %q", q)
	}
	r.Flush()
	before := again()
	lookup(t, r, "host.test", A)
	if q := d.Queries(); len(q)-again()+before != 1 {
		t.Errorf("after Flush: queries %q", q)
	}
}

func TestCacheBounds(t *testing.T) {
	c, now := cache{}, time.Now()
	long := Answer{Type: A, TTL: 1000 * time.Hour}
	c.put("x", long, now)
	if _, ok := c.get("x", A, now.Add(maxTTL-time.Second)); !ok {
		t.Error("forgotten too early")
	}
	if _, ok := c.get("x", A, now.Add(maxTTL)); ok {
		t.Error("kept longer than the cap")
	}
	long.Err = errNoHost("x", "")
	c.put("x", long, now)
	if _, ok := c.get("x", A, now.Add(maxNegativeTTL)); ok {
		t.Error("absence kept longer than the cap")
	}
	for i := range 2 * maxEntries {
		c.put(fmt.Sprint(i), long, now)
	}
	if len(c.entries) > maxEntries {
		t.Errorf("%d entries", len(c.entries))
	}
}

func TestConfigIsReadAgain(t *testing.T) {
	one, two := startDNS(t), startDNS(t)
	one.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), TTL: 600})
	two.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.2"), TTL: 600})
	r := etc(t, map[string]string{}, one)
	got, _ := lookup(t, r, "host.test", A)
	wantAddrs(t, got[A], "192.0.2.1")
	text := fmt.Sprintf("# another network\nnameserver [127.0.0.1]:%d\n", two.Addr.Port())
	if err := os.WriteFile(filepath.Join(r.Dir, "resolv.conf"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	time.Sleep(recheck + 50*time.Millisecond)
	got, _ = lookup(t, r, "host.test", A)
	wantAddrs(t, got[A], "192.0.2.2")
}

func TestParseConfig(t *testing.T) {
	c := ParseConfig(strings.NewReader("; x\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\n"+
		"nameserver [::1]:5353\nnameserver junk\nnameserver 192.0.2.53\ndomain a.test\n"+
		"search B.test. c.test\noptions ndots:99 timeout:0 attempts:77 rotate edns0 trust-ad "+
		"use-vc no-aaaa bogus ndots:x\n"), "h.example")
	if len(c.Servers) != 3 || c.Servers[2].Port() != 5353 || c.Servers[1].Addr().Zone() != "eth0" {
		t.Errorf("servers %v", c.Servers)
	}
	if !slices.Equal(c.Search, []string{"b.test", "c.test"}) || c.Ndots != maxNdots ||
		c.Timeout != time.Second || c.Attempts != maxAttempts {
		t.Errorf("%+v", c)
	}
	if !c.Rotate || !c.TrustAD || !c.TCP || !c.NoAAAA || c.Single {
		t.Errorf("%+v", c)
	}
	c = ParseConfig(strings.NewReader(""), "h.example.test")
	if !slices.Equal(c.Search, []string{"example.test"}) || len(c.Servers) != 2 ||
		c.Timeout != 5*time.Second {
		t.Errorf("defaults %+v", c)
	}
}
