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
		host.IP("route add local " + prefix + " dev lo")
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

// TestIsToHost: of addresses, by the routes.
func TestIsToHost(t *testing.T) {
	lab := nstest.New(t)
	host, other := lab.Node("host"), lab.Node("other")
	host.Sysctl("net.ipv6.conf.all.forwarding", "1")
	lab.Join(host, "eth0", "192.0.2.1/24 2001:db8::1/64", other, "eth0", "192.0.2.2/24")
	for _, route := range []string{"local 198.51.100.0/28 dev lo", "local 2001:db8:a::/64 dev lo",
		"local 0.0.0.0/0 dev lo table 100", "blackhole 203.0.113.1", "prohibit 203.0.113.2",
		"unreachable 203.0.113.3", "unreachable 2001:db8:b::3"} {
		host.IP("route add " + route)
	}
	for text, want := range map[string]bool{"192.0.2.1": true, "192.0.2.2": false,
		"2001:db8::1": true, "2001:db8::2": false, "2001:db8::": true, "198.51.100.9": true,
		"198.51.100.16": false, "2001:db8:a::9": true, "2001:db8:c::9": false,
		"203.0.113.1": false, "203.0.113.2": false, "203.0.113.3": false,
		"2001:db8:b::3": false} {
		if err := host.Do(func() error {
			is, err := IsToHost(netip.MustParseAddr(text))
			if is != want {
				t.Errorf("%s: %t is wrong", text, is)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
