package test

import (
	"slices"
	"strings"
	"testing"
)

// peerNames returns the names of a node's peers.
func (h *podHost) peerNames() (names []string) {
	h.t.Helper()
	for _, p := range h.peers().Peers {
		names = append(names, p.Name)
	}
	return names
}

// TestPeersOfACluster: weir peer neither changes nor removes a peer that is a host of the cluster,
// and says which command does. It adds and removes others beside it.
func TestPeersOfACluster(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	k.join("a", k.a)
	k.join("b", k.b)
	of := []string{"host:b"}
	if names := k.a.peerNames(); !slices.Equal(names, of) {
		t.Fatalf("the peers are %q", names)
	}
	before := k.a.peers().Peers[0]
	add := func(name, pods string) []string {
		return []string{"peer", "add", name, "--key", strings.Repeat("B", 43) + "=", "--endpoint",
			"10.66.1.9:51820", "--pods", pods}
	}
	for _, refused := range [][]string{add("host:b", "10.99.0.0/24"),
		{"peer", "remove", "host:b"}, {"peer", "remove", "host:b", "--release"}} {
		out, stderr, err := k.a.try(refused...)
		if err == nil || !strings.Contains(stderr, "peer host:b is host b of the cluster") ||
			!strings.Contains(stderr, "weir node remove b") {
			t.Errorf("%q: %v, %s%s", refused, err, out, stderr)
		}
	}
	if after := k.a.peers().Peers; len(after) != 1 || after[0].Key != before.Key ||
		!slices.Equal(after[0].Pods, before.Pods) {
		t.Errorf("the peers are %+v, they were %+v", after, before)
	}
	k.a.weir(add("by-hand", "10.99.0.0/24")...)
	if names := k.a.peerNames(); !slices.Equal(names, []string{"by-hand", "host:b"}) {
		t.Errorf("the peers are %q", names)
	}
	k.a.weir("peer", "remove", "by-hand")
	if names := k.a.peerNames(); !slices.Equal(names, of) {
		t.Errorf("the peers are %q", names)
	}
}
