package pods

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
)

// TestPodMetrics: each interface of a pod has its series once, also while a pod that goes has the
// name of the next one.
func TestPodMetrics(t *testing.T) {
	list := []api.Pod{
		{Name: "web", Container: "old", IfName: "eth0", Packets: [2]uint64{1, 1}},
		{Name: "web", Container: "new", IfName: "eth0", Packets: [2]uint64{10, 20},
			Bytes: [2]uint64{1000, 2000}, Drops: [2]uint64{3, 4}},
		{Name: "web", Container: "new", IfName: "eth1", Packets: [2]uint64{5, 6}},
	}
	var got []string
	for _, m := range podMetrics(list) {
		for _, s := range m.Samples {
			got = append(got, fmt.Sprintf("%s %v %v", m.Name, s.Labels, s.Value))
		}
	}
	want := `weir_pod_packets_total [pod web interface eth0 direction in] 10
weir_pod_packets_total [pod web interface eth0 direction out] 20
weir_pod_packets_total [pod web interface eth1 direction in] 5
weir_pod_packets_total [pod web interface eth1 direction out] 6
weir_pod_bytes_total [pod web interface eth0 direction in] 1000
weir_pod_bytes_total [pod web interface eth0 direction out] 2000
weir_pod_bytes_total [pod web interface eth1 direction in] 0
weir_pod_bytes_total [pod web interface eth1 direction out] 0
weir_pod_dropped_total [pod web interface eth0 direction in] 3
weir_pod_dropped_total [pod web interface eth0 direction out] 4
weir_pod_dropped_total [pod web interface eth1 direction in] 0
weir_pod_dropped_total [pod web interface eth1 direction out] 0`
	if g := strings.Join(got, "\n"); g != want {
		t.Errorf("got\n%s\nwant\n%s", g, want)
	}
	for _, m := range podMetrics(nil) {
		if len(m.Samples) != 0 {
			t.Errorf("%s without pods: %v", m.Name, m.Samples)
		}
	}
}
