package pods

import (
	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/pod/dns"
)

// Metrics are about the pods that there are, and about the name server.
func (s *Service) Metrics() ([]observe.Metric, error) {
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	return append(podMetrics(list.Pods), s.dnsMetrics(), observe.NewGauge("weir_pods",
		"Containers that this node gives a network.", len(s.list()))), nil
}

// podMetrics are what the pods have sent and got, oldest first. A pod that goes may have the name
// of one that has come: the younger one counts.
func podMetrics(list []api.Pod) []observe.Metric {
	packets := observe.Metric{Name: "weir_pod_packets_total", Type: observe.Counter,
		Help: "Packets of a pod, in to it and out of it."}
	bytes := observe.Metric{Name: "weir_pod_bytes_total", Type: observe.Counter,
		Help: "Bytes of these packets."}
	dropped := observe.Metric{Name: "weir_pod_dropped_total", Type: observe.Counter,
		Help: "Packets to and from a pod that were dropped."}
	type name struct{ pod, ifname string }
	youngest := map[name]int{}
	for i := range list {
		youngest[name{list[i].Name, list[i].IfName}] = i
	}
	for i := range list {
		p := &list[i]
		if youngest[name{p.Name, p.IfName}] != i {
			continue
		}
		for k, direction := range [...]string{"in", "out"} {
			labels := []string{"pod", p.Name, "interface", p.IfName, "direction", direction}
			packets.Add(float64(p.Packets[k]), labels...)
			bytes.Add(float64(p.Bytes[k]), labels...)
			dropped.Add(float64(p.Drops[k]), labels...)
		}
	}
	return []observe.Metric{packets, bytes, dropped}
}

func (s *Service) dnsMetrics() observe.Metric {
	var stats dns.Stats
	if server := s.dns.Load(); server != nil {
		stats = server.Stats()
	}
	queries := observe.Metric{Name: "weir_dns_queries_total", Type: observe.Counter,
		Help: "Queries to the name server of the pods, by result."}
	for _, one := range []struct {
		result string
		n      uint64
	}{
		{"answered", stats.Answered}, {"forwarded", stats.Forwarded}, {"failed", stats.Failed},
		{"refused", stats.Refused}, {"dropped", stats.Dropped},
	} {
		queries.Add(float64(one.n), "result", one.result)
	}
	return queries
}
