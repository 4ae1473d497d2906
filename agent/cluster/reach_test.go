package cluster

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
)

// TestReach: other hosts try a bounded number of addresses, of interfaces that are neither pods nor
// the tunnel and that the node guards.
func TestReach(t *testing.T) {
	addrs := func(all ...string) (addrs []netip.Prefix) {
		for _, a := range all {
			addrs = append(addrs, netip.MustParsePrefix(a))
		}
		return addrs
	}
	ifs := []firewall.Interface{
		{Name: "eth0", Addrs: addrs("192.0.2.2/24", "fe80::1/64", "192.0.2.1/24", "10.88.0.1/24")},
		{Name: "eth1", Addrs: addrs("192.0.2.1/32")}, {Name: "lan0", Addrs: addrs("10.1.0.1/24")},
		{Name: "weir0", Addrs: addrs("10.2.0.1/24")}, {Name: "pod:a", Addrs: addrs("10.3.0.1/24")},
	}
	pods := netip.MustParsePrefix("10.88.0.0/24")
	r := Reach{Interfaces: func() []firewall.Interface { return ifs }, IsPod: pods.Contains,
		Guards: func(name string) bool { return name != "lan0" }, Tunnel: "weir0", Port: 51820}
	if got := fmt.Sprint(r.endpoints()); got != "[192.0.2.1:51820 192.0.2.2:51820]" {
		t.Errorf("announced %s", got)
	}
	ifs = ifs[2:3]
	if got := r.endpoints(); got == nil || len(got) != 0 {
		t.Errorf("a host that others cannot reach announces %v, which is not empty", got)
	}
	ifs[0].Name = "eth2"
	for i := range byte(2 * maxEndpoints) {
		ifs[0].Addrs = append(ifs[0].Addrs,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, i}), 24))
	}
	if got := r.endpoints(); len(got) > maxEndpoints {
		t.Errorf("announced %v", got)
	}
}
