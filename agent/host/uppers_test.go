package host

import (
	"net"
	"slices"
	"testing"

	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
)

// TestUppersFollow: each change of what is above what gives another list, and only such a change.
func TestUppersFollow(t *testing.T) {
	l := NewLinks()
	mac := func(n byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, n} }
	set := func(link nl.Link) func() {
		return func() { l.Report(nl.Event{Kind: nl.LinkSet, Link: link}) }
	}
	eth0 := nl.Link{Index: 2, Name: "eth0", Kind: "device", HardwareAddr: mac(2)}
	port := eth0
	port.Master = 3
	bridge := nl.Link{Index: 3, Name: "br0", Kind: "bridge", HardwareAddr: mac(3)}
	filtering := bridge
	filtering.Filtering = true
	vlan := nl.Link{Index: 4, Name: "eth0.10", Kind: "vlan", Peer: 2, PeerNS: -1,
		VLAN: nl.VLAN{Proto: 0x8100, ID: 10}}
	away := vlan
	away.PeerNS = 7
	onBridge := kernel.Upper{Index: 3, Lower: 2, Kind: kernel.UpperBridge,
		MACs: [2][6]byte{{2, 0, 0, 0, 0, 3}, {2, 0, 0, 0, 0, 2}}}
	onVLAN := kernel.Upper{Index: 4, Lower: 2, Kind: kernel.UpperVLAN, Proto: 0x8100, ID: 10}
	onBond := kernel.Upper{Index: 3, Lower: 2, Kind: kernel.UpperBond}
	for _, step := range []struct {
		what string
		do   func()
		want []kernel.Upper
	}{
		{"a NIC", set(eth0), nil},
		{"a port before its bridge", set(port), nil},
		{"a bridge", set(bridge), []kernel.Upper{onBridge}},
		{"a VLAN", set(vlan), []kernel.Upper{onBridge, onVLAN}},
		{"VLANs of the bridge", set(filtering), []kernel.Upper{onVLAN}},
		{"none again", set(bridge), []kernel.Upper{onBridge, onVLAN}},
		{"a VLAN of another namespace", set(away), []kernel.Upper{onBridge}},
		{"a bond", set(nl.Link{Index: 3, Name: "br0", Kind: "bond"}), []kernel.Upper{onBond}},
		{"no port", set(eth0), nil},
		{"a port of it", set(port), []kernel.Upper{onBond}},
		{"no bond", func() { l.Report(nl.Event{Kind: nl.LinkGone, Link: bridge}) }, nil},
	} {
		step.do()
		if got := l.Uppers(); !slices.Equal(got, step.want) {
			t.Errorf("%s: %+v, want %+v", step.what, got, step.want)
		}
	}
	set(nl.Link{Index: 9, Name: "veth9", Kind: "veth"})()
	if !l.uppers.known {
		t.Error("a pod makes the list be made again")
	}
}
