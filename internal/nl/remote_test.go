package nl

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestGREWithoutRemote: only GRE tunnels that the kernel makes headers for have no remote end.
func TestGREWithoutRemote(t *testing.T) {
	for _, c := range []struct {
		link netlink.Link
		want bool
	}{
		{&netlink.Gretun{}, true},
		{&netlink.Gretun{Remote: net.IPv4zero}, true},
		{&netlink.Gretun{Remote: net.IPv6zero}, true},
		{&netlink.Gretun{Remote: net.IPv4(224, 0, 0, 9)}, true},
		{&netlink.Gretun{FlowBased: true}, false},
		{&netlink.Gretun{Remote: net.IPv4(192, 0, 2, 1)}, false},
		{&netlink.Gretun{Remote: net.ParseIP("2001:db8::1")}, false},
		{&netlink.Gretap{}, false}, // Ethernet
		{&netlink.Iptun{}, false},
	} {
		if got := noRemote(c.link); got != c.want {
			t.Errorf("%+v: %v", c.link, got)
		}
	}
}
