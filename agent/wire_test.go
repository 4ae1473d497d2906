package agent

import (
	"testing"

	"github.com/weirnet/weir/pod"
)

// TestKnownPodsAreAll: pods that are taken over while the services ask are either listed, or not
// known: services without pods would end all their flows.
func TestKnownPodsAreAll(t *testing.T) {
	taken := false
	begun := func() bool {
		was := taken
		taken = true
		return was
	}
	living := func() []pod.Pod {
		all := []pod.Pod{{Key: "w1"}}
		if !taken {
			all = nil
		}
		taken = true
		return all
	}
	if all, known := knownPods(begun, living); known && len(all) == 0 {
		t.Error("no pods are known while one is taken over")
	}
	if all, known := knownPods(begun, living); !known || len(all) != 1 {
		t.Errorf("%v, %v after they were taken over", all, known)
	}
}
