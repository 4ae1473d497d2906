package main

import (
	"context"

	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/server"
)

// serveMetrics answers scrapes until the context ends.
func serveMetrics(ctx context.Context, address string, s *server.Server,
	member *etcd.Member, full func() int) error {
	served := make(chan error, 1)
	listening, err := observe.ServeMetrics(address, func() ([]observe.Metric, error) {
		return append(serverMetrics(s), memberMetrics(member, full)...), nil
	}, served)
	if err != nil {
		return err
	}
	defer listening.Close()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-served:
		return err
	}
}

// serverMetrics are about the clients. No label has a name of one: there are as many as hosts.
func serverMetrics(s *server.Server) []observe.Metric {
	now, c := s.Gauges(), &s.Counters
	connections := observe.Metric{Name: "weir_store_server_connections_total",
		Help: "Connections by what became of them.", Type: observe.Counter}
	connections.Add(float64(c.Accepted.Load()), "result", "accepted")
	connections.Add(float64(c.Refused.Load()), "result", "refused")
	connections.Add(float64(c.Ended.Load()), "result", "ended")
	connections.Add(float64(c.Waits.Load()), "result", "wait")
	follows := observe.Metric{Name: "weir_store_server_follows_total",
		Help: "How connections began to follow.", Type: observe.Counter}
	follows.Add(float64(c.Continues.Load()), "how", "continue")
	follows.Add(float64(c.Differences.Load()), "how", "difference")
	requests := observe.Metric{Name: "weir_store_server_requests_total",
		Help: "Requests by kind and result.", Type: observe.Counter}
	for result, n := range c.Reads.All {
		requests.Add(float64(n), "kind", "read", "result", result)
	}
	for result, n := range c.Transactions.All {
		requests.Add(float64(n), "kind", "commit", "result", result)
	}
	requests.Add(float64(c.Joins.Load()), "kind", "join", "result", "done")
	requests.Add(float64(c.JoinsRefused.Load()), "kind", "join", "result", "denied")
	return []observe.Metric{connections, follows, requests,
		observe.NewGauge("weir_store_server_connections",
			"Connections of hosts, administrators and feeds.", now.Connections),
		observe.NewGauge("weir_store_server_followers", "Connections that follow.", now.Followers),
		observe.NewGauge("weir_store_server_watches", "Watches of connections.", now.Watches),
		observe.NewGauge("weir_store_server_etcd_connected", "1 while the watch on etcd works.",
			observe.Bool(!now.Failing)),
		observe.NewCounter("weir_store_server_etcd_failures_total",
			"How often the watch on etcd ended.", c.StoreFailures.Load()),
		observe.NewGauge("weir_store_server_copy_full_ratio",
			"How full the copy is that weir-store and hosts keep, from 0 to 1; above 1 it is not "+
				"followed.", now.CopyFull),
		observe.NewCounter("weir_store_server_large_total",
			"How often what etcd has was not followed, since the copy would be too large.",
			c.Large.Load()),
		observe.NewCounter("weir_store_server_overtaken_total",
			"Differences that ended, since a newer one of the same certificate began.",
			c.Overtaken.Load()),
		observe.NewCounter("weir_store_server_slow_total",
			"Connections that ended, since there is no memory for what slow ones have not taken "+
				"yet.", c.Slow.Load()),
		observe.NewCounter("weir_store_server_throttled_total",
			"Transactions and reads that waited, since their certificate writes or reads much.",
			c.Throttled.Load()),
		observe.NewCounter("weir_store_server_no_space_total",
			"Transactions that were refused, since the database is nearly full.", c.NoSpace.Load())}
}

// memberMetrics are about the embedded member; none with an external etcd.
func memberMetrics(m *etcd.Member, full func() int) []observe.Metric {
	if m == nil {
		return nil
	}
	is, known := m.Leader()
	return []observe.Metric{
		observe.NewGauge("weir_store_server_leader", "1 on the leader of the members of etcd.",
			observe.Bool(is)),
		observe.NewGauge("weir_store_server_leader_known", "1 while the member knows a leader.",
			observe.Bool(known)),
		observe.NewGauge("weir_store_server_database_bytes", "Size of the database on the disk.",
			m.Size()),
		observe.NewGauge("weir_store_server_database_full_ratio",
			"How full the database is, from 0 to 1.", float64(full())/100)}
}
