package main

import (
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/storetest"
)

// TestMetrics: weir-store serves what docs/store-metrics.md lists, and counts what clients do.
func TestMetrics(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	h := home(a.dir)
	cfg, err := h.config()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Metrics = freeAddress(t)
	if err := h.writeConfig(cfg); err != nil {
		t.Fatal(err)
	}
	a.serve(t)
	x := l.join(t, a, "x")
	commit(t, x, put(cluster.PodsTree+"x/0000", "1"))
	if _, err := x.Commit(t.Context(), put(cluster.HeadKey, "1")); err == nil {
		t.Error("a host writes the head")
	}
	follow(t, x.Client)
	var text string
	has := func(lines ...string) bool {
		text = scrape(t, cfg.Metrics)
		return !slices.ContainsFunc(lines, func(line string) bool {
			return !strings.Contains(text, "\n"+line+"\n")
		})
	}
	storetest.Eventually(t, "what x did is counted", func() bool {
		return has("weir_store_server_followers 1", "weir_store_server_leader 1",
			"weir_store_server_leader_known 1", "weir_store_server_etcd_connected 1",
			`weir_store_server_requests_total{kind="join",result="done"} 1`,
			`weir_store_server_requests_total{kind="commit",result="denied"} 1`,
			`weir_store_server_follows_total{how="difference"} 1`)
	})
	page, err := os.ReadFile("../../../../docs/store-metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := names(string(page), `(?m)^\| .(weir_\w+)[^|]*\| (counter|gauge) `)
	if served := names(text, `(?m)^# TYPE (weir_\w+) (counter|gauge)$`); !maps.Equal(served,
		documented) {
		t.Errorf("it serves\n%v\nand the page has\n%v", served, documented)
	}
}

// names returns the types of metrics, by name.
func names(text, pattern string) map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// scrape returns the metrics, or "" while they are not served.
func scrape(t *testing.T, address string) string {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMetricsAddressTaken: weir-store serves hosts although another program has the address of its
// metrics.
func TestMetricsAddressTaken(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	h := home(a.dir)
	cfg, err := h.config()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Metrics = taken.Addr().String()
	if err := h.writeConfig(cfg); err != nil {
		t.Fatal(err)
	}
	a.serve(t)
	x := l.join(t, a, "x")
	commit(t, x, put(cluster.PodsTree+"x/0000", "1"))
	a.stop(t)
	if said := a.log.String(); !strings.Contains(said, "metrics are not served") {
		t.Errorf("the log has no word of it: %s", said)
	}
}
