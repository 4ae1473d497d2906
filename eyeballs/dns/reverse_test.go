package dns

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

// TestNameOf: the hosts file comes first, then the servers, whose answers are cached. A name that
// is not a host name is an error.
func TestNameOf(t *testing.T) {
	d := startDNS(t)
	const six = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
	for name, r := range map[string]eyeballstest.Record{
		"1.2.0.192.in-addr.arpa": {Host: "web.example", TTL: 60},
		"2.2.0.192.in-addr.arpa": {CNAME: "2.sub.example", Host: "behind.a.cname.example", TTL: 60},
		"3.2.0.192.in-addr.arpa": {Host: "pod:web", TTL: 60},
		"4.2.0.192.in-addr.arpa": {Host: "a\x1b[2Jb.example", TTL: 60},
		"5.2.0.192.in-addr.arpa": {RCode: dnsmessage.RCodeNameError},
		six:                      {Host: "six.example", TTL: 60},
	} {
		d.Set(name, dnsmessage.TypePTR, r)
	}
	r := etc(t, map[string]string{"hosts": "192.0.2.9 nine.example nine\n192.0.2.9 other\n"}, d)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for addr, want := range map[string]string{
		"192.0.2.1": "web.example", "::ffff:192.0.2.1": "web.example",
		"192.0.2.2": "behind.a.cname.example", "2001:db8::1": "six.example",
		"192.0.2.3": "", "192.0.2.4": "", "192.0.2.5": "", "192.0.2.9": "nine.example",
	} {
		for range 2 {
			got, err := r.NameOf(ctx, netip.MustParseAddr(addr))
			if got != want || (err == nil) != (want != "") {
				t.Errorf("%s is %q, %v; want %q", addr, got, err, want)
			}
		}
	}
	queries := 0
	for _, q := range asked(d, r) {
		if strings.Contains(q, "1.2.0.192") {
			queries++
		}
		if strings.Contains(q, "9.2.0.192") {
			t.Error("a server was queried for a name of the hosts file")
		}
	}
	if queries != 1 {
		t.Errorf("the server was queried %d times for the same name", queries)
	}
}
