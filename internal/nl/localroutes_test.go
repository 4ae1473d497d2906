package nl_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestLocalRoutes: what `ip route add local` has added is listed, and neither addresses of the host
// nor local routes of other tables, which only some packets meet.
func TestLocalRoutes(t *testing.T) {
	lab := nstest.New(t)
	host, other := lab.Node("host"), lab.Node("other")
	lab.Join(host, "eth0", "192.0.2.1/24 2001:db8::1/64", other, "eth0", "192.0.2.2/24")
	list := func() string {
		var text []string
		if err := host.Do(func() error {
			routes, err := nl.LocalRoutes(time.Minute)
			for _, r := range routes {
				text = append(text, fmt.Sprint(r.Dst, " ", r.Link))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(text)
		return fmt.Sprint(text)
	}
	if got := list(); got != "[]" {
		t.Errorf("a host without local routes has %s", got)
	}
	host.IP("route add 198.51.100.0/24 via 192.0.2.2")
	host.IP("rule add fwmark 1 lookup 100")
	host.IP("route add local 0.0.0.0/0 dev lo table 100")
	host.IP("route add broadcast 203.0.113.255 dev eth0 table local")
	for _, prefix := range []string{"203.0.113.0/28", "203.0.113.77", "2001:db8:a::/64"} {
		host.IP("route add local " + prefix + " dev lo")
	}
	link := host.Link("eth0")
	host.IP("route add local 2001:db8:b::5 dev eth0 metric 5")
	want := fmt.Sprintf("[2001:db8:a::/64 1 2001:db8:b::5/128 %d 203.0.113.0/28 1 "+
		"203.0.113.77/32 1]", link.Index)
	if got := list(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	host.IP("route add local 0.0.0.0/0 dev lo")
	host.IP("route delete local 203.0.113.77 dev lo")
	host.IP("-6 route flush table local proto boot")
	if got := list(); got != "[0.0.0.0/0 1 203.0.113.0/28 1]" {
		t.Errorf("after changes: %s", got)
	}
	host.Sysctl("net.ipv6.conf.all.disable_ipv6", "1")
	if got := list(); got != "[0.0.0.0/0 1 203.0.113.0/28 1]" {
		t.Errorf("without IPv6: %s", got)
	}
}
