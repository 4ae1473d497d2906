package host

import (
	"slices"
	"testing"

	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
)

// TestUppersFollow: each change of what is above what gives another list, and only such a change.
func TestUppersFollow(t *testing.T) {
	l := NewLinks()
	set := func(link nl.Link) func() {
		return func() { l.Report(nl.Event{Kind: nl.LinkSet, Link: link}) }
	}
	eth0 := nl.Link{Index: 2, Name: "eth0", Kind: "device"}
	port := eth0
	port.Master = 3
	bridge := nl.Link{Index: 3, Name: "br0", Kind: "bridge"}
	vlan := nl.Link{Index: 4, Name: "eth0.10", Kind: "vlan", Peer: 2, PeerNS: -1}
	away := vlan
	away.PeerNS = 7
	onBridge := kernel.Upper{Index: 3, Lower: 2}
	onVLAN := kernel.Upper{Index: 4, Lower: 2}
	for _, step := range []struct {
		what string
		do   func()
		want []kernel.Upper
	}{
		{"a NIC", set(eth0), nil},
		{"a port", set(port), []kernel.Upper{onBridge}},
		{"its bridge", set(bridge), []kernel.Upper{onBridge}},
		{"a VLAN", set(vlan), []kernel.Upper{onBridge, onVLAN}},
		{"a VLAN of another namespace", set(away), []kernel.Upper{onBridge}},
		{"no port", set(eth0), nil},
		{"a port again", set(port), []kernel.Upper{onBridge}},
		{"no VLAN", func() { l.Report(nl.Event{Kind: nl.LinkGone, Link: vlan}) },
			[]kernel.Upper{onBridge}},
		{"no NIC", func() { l.Report(nl.Event{Kind: nl.LinkGone, Link: port}) }, nil},
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
