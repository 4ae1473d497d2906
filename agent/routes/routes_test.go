package routes

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestToHost: the addresses of the host and local routes lead to it, broadcast and anycast
// addresses do not.
func TestToHost(t *testing.T) {
	lab := nstest.New(t)
	host, other := lab.Node("host"), lab.Node("other")
	host.Sysctl("net.ipv6.conf.all.forwarding", "1")
	lab.Join(host, "eth0", "192.0.2.1/24 2001:db8::1/64", other, "eth0", "192.0.2.2/24")
	for _, prefix := range []string{"198.51.100.0/28", "2001:db8:a::/64"} {
		if out, err := host.Command("ip", "route", "add", "local", prefix, "dev",
			"lo").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	var have []netip.Prefix
	if err := host.Do(func() (err error) { have, err = ToHost(); return err }); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"192.0.2.1/32": true, "2001:db8::1/128": true,
		"198.51.100.0/28": true, "2001:db8:a::/64": true, "192.0.2.255/32": false,
		"2001:db8::/128": false, "192.0.2.0/24": false} {
		if slices.Contains(have, netip.MustParsePrefix(text)) != want {
			t.Errorf("%s: %t is wrong, in %v", text, !want, have)
		}
	}
}
