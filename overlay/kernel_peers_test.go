package overlay

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/internal/nl"
)

// TestKernelKeepsRanges: the kernel is asked to replace the ranges of a peer only when one goes: it
// takes all away first.
func TestKernelKeepsRanges(t *testing.T) {
	first, second := netip.MustParsePrefix("10.76.0.0/16"), netip.MustParsePrefix("10.77.0.0/16")
	has := []nl.WireGuardPeer{{Key: Key{2}, AllowedIPs: []netip.Prefix{first}},
		{Key: Key{1}, AllowedIPs: []netip.Prefix{first}}}
	for _, c := range []struct {
		what     string
		key      Key
		pods     []netip.Prefix
		replaces bool
	}{
		{"a new peer", Key{3}, []netip.Prefix{second}, false},
		{"the same ranges", Key{1}, []netip.Prefix{first}, false},
		{"one more", Key{1}, []netip.Prefix{second, first}, false},
		{"another one", Key{1}, []netip.Prefix{second}, true},
		{"none", Key{1}, nil, true},
	} {
		change := changeTo(&peer{Peer: Peer{Key: c.key, Pods: c.pods}}, nil, has)
		if change.Replace != c.replaces || len(change.AllowedIPs) != len(c.pods) {
			t.Errorf("%s: %+v", c.what, change)
		}
	}
}

// TestKernelPeerOfOthers: a peer of the interface that is none of ours, such as one that was not
// dropped, gets no endpoint.
func TestKernelPeerOfOthers(t *testing.T) {
	k := &kernelPath{candidates: []netip.AddrPort{pathA, pathB}}
	d := &KernelDevice{paths: map[Key]*kernelPath{{1}: k}}
	d.stepLocked(nl.WireGuardPeer{Key: Key{1}, Endpoint: pathA}, 0, func(a netip.AddrPort) bool {
		return a == pathB
	})
	if k.tries > 0 {
		t.Error("it was tried")
	}
}
