package cluster

import (
	"slices"
	"testing"

	"github.com/weirnet/weir/store/cluster"
)

// TestHostsInOrder: hosts that are gone leave the peers before others come, which may have their
// ranges.
func TestHostsInOrder(t *testing.T) {
	node := new(cluster.Node)
	var got []string
	for _, h := range inOrder(map[string]cluster.HostChange{"a": {Name: "a", Node: node},
		"b": {Name: "b"}, "c": {Name: "c", Node: node}, "d": {Name: "d"}}) {
		got = append(got, h.Name)
	}
	if want := []string{"b", "d", "a", "c"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
