package test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// documented reads the table of metrics of a page: type and labels by name.
func documented(t *testing.T, page string) map[string][2]string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][2]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)(?:\\{([a-z,_]+)\\})?` \\| "+
		"(counter|gauge) \\|").FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = [2]string{m[3], m[2]}
	}
	return all
}

// TestMetricsAreAsDocumented: what a node serves is what docs/metrics.md lists, and follows the
// conventions.
func TestMetricsAreAsDocumented(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	p := newPair(t)
	config := p.file("m.toml", "[observe]\nmetrics = \"127.0.0.1:9642\"\n")
	p.start("--config", config, "--iface", "eth0", "--rules", p.file("watched", watchedRules))
	probe(t, p, 81)
	for range 3 {
		c, err := p.client.DialContext(t.Context(), "udp", "10.66.0.1:53")
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("datagram"))
		c.Close()
	}
	text, err := p.server.Command("curl", "-sS", "http://127.0.0.1:9642/metrics").Output()
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := p.server.Command("curl", "-sS",
		"http://127.0.0.1:9642/v1/rules").Output(); strings.Contains(string(out), "deny") {
		t.Error("the address of the metrics serves more than metrics")
	}
	want := documented(t, "metrics.md")
	maps.DeleteFunc(want, func(name string, _ [2]string) bool {
		return strings.HasPrefix(name, clusterMetric) || // TestCluster
			strings.HasPrefix(name, podMetric) || // TestServicePassesDeadPodOver
			strings.HasPrefix(name, serviceMetric) // TestServicePassesDeadPodOver
	})
	checkMetrics(t, string(text), want)
	checkBuildInfo(t, string(text))
	if strings.Contains(string(text), "10.66.") {
		t.Error("there is an address in\n", string(text))
	}
}

// TestProxyMetrics: the proxy reports how its dials raced, as in docs/proxy.md.
func TestProxyMetrics(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	}))
	defer origin.Close()
	_, port, _ := net.SplitHostPort(origin.Listener.Addr().String())
	// to find a free port, at an address that no other program asks for
	l, err := net.Listen("tcp", "127.77.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	address, stop := startProxy(t, "--metrics", l.Addr().String())
	defer stop()
	client := &http.Client{Timeout: 5 * time.Minute,
		Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "socks5h",
			Host: address})}}
	get := func(where string) string {
		resp, err := client.Get(where)
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}
	for range 3 {
		client.CloseIdleConnections()
		if got := get("http://localhost:" + port + "/"); got != "hello" {
			t.Fatalf("through the proxy: %q", got)
		}
	}
	get("http://localhost:1/")
	client.Transport = nil
	text := get("http://" + l.Addr().String() + "/metrics")
	checkMetrics(t, text, documented(t, "proxy.md"))
	checkBuildInfo(t, text)
	won := 0
	for _, m := range regexp.MustCompile(`(?m)^weir_dial_races_total\{.*\} (\d+)$`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		won += n
	}
	if won != 3 || !strings.Contains(text, "\nweir_dial_failures_total 1\n") ||
		!strings.Contains(text, "\nweir_proxy_clients_total 4\n") {
		t.Errorf("3 dials were won and one was lost; the metrics say\n%s", text)
	}
}

// checkMetrics compares a scrape with what is documented, and has it read by the lint of
// Prometheus's own library.
func checkMetrics(t *testing.T, text string, want map[string][2]string) {
	t.Helper()
	served := map[string]bool{}
	var kind, help string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := strings.SplitN(line, " ", 4)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			help = fields[2]
			if len(fields) < 4 || !strings.HasSuffix(fields[3], ".") {
				t.Errorf("no sentence: %s", line)
			}
		case strings.HasPrefix(line, "# TYPE "):
			kind = fields[3]
			if fields[2] != help || served[help] {
				t.Errorf("%s comes twice or without help", fields[2])
			}
			served[help] = true
			if want[help][0] != kind {
				t.Errorf("%s is a %s, documented as %q", help, kind, want[help][0])
			}
		default:
			m := regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? [0-9.e+-]+$`).FindStringSubmatch(line)
			if m == nil || m[1] != help {
				t.Errorf("no sample of %s: %s", help, line)
				continue
			}
			var labels []string
			for _, l := range regexp.MustCompile(`([a-z_]+)="[^"]*"`).FindAllStringSubmatch(m[2],
				-1) {
				labels = append(labels, l[1])
			}
			if strings.Join(labels, ",") != want[help][1] {
				t.Errorf("%s has labels %v, documented are %q", help, labels, want[help][1])
			}
		}
	}
	for name := range want {
		if !served[name] {
			t.Errorf("%s is documented and not served", name)
		}
	}
	lint := exec.Command("go", "run", "./promlint")
	lint.Dir, lint.Stdin = "../tools", strings.NewReader(text)
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("promlint: %v\n%s", err, out)
	}
}

// checkBuildInfo compares weir_build_info of a scrape with what the binary says of itself.
func checkBuildInfo(t *testing.T, text string) {
	t.Helper()
	out, err := exec.Command(weir, "version", "-j").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Weir, Commit, Go string
		Modified         bool
	}
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	revision := cmp.Or(v.Commit, "unknown")
	if v.Modified {
		revision += "-modified"
	}
	want := fmt.Sprintf("\nweir_build_info{version=%q,revision=%q,goversion=%q} 1\n", v.Weir,
		revision, v.Go)
	if !strings.Contains(text, want) {
		t.Errorf("the metrics lack %s", want)
	}
}

// TestDashboardAndAlertsMatch: every metric that the dashboard and the alerts ask for is one that a
// node serves, with labels that it has.
func TestDashboardAndAlertsMatch(t *testing.T) {
	t.Parallel()
	want := documented(t, "metrics.md")
	maps.Copy(want, documented(t, "proxy.md"))
	dashboard, err := os.ReadFile("../dist/monitoring/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(dashboard, &d); err != nil {
		t.Fatal(err)
	}
	expressions := map[string]string{}
	asked := map[string]bool{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expressions["panel "+p.Title+": "+target.Expr] = target.Expr
		}
	}
	alerts, err := os.ReadFile("../dist/monitoring/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(string(alerts),
		-1) {
		expressions["alert: "+m[1]] = m[1]
	}
	if len(expressions) < 15 {
		t.Fatalf("only %d expressions were found", len(expressions))
	}
	for where, e := range expressions {
		for _, m := range regexp.MustCompile(`\b((?:weir|process|go)_[a-z_]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(e, -1) {
			known, ok := want[m[1]]
			if !ok {
				t.Errorf("%s: no node serves %s", where, m[1])
			}
			asked[m[1]] = true
			if known[0] == "counter" && !strings.Contains(e, "rate(") {
				t.Errorf("%s: a counter without rate", where)
			}
			for _, l := range regexp.MustCompile(`([a-z_]+)=~?"`).FindAllStringSubmatch(m[2], -1) {
				if l[1] != "instance" && !slices.Contains(strings.Split(known[1], ","), l[1]) {
					t.Errorf("%s: %s has no label %s", where, m[1], l[1])
				}
			}
		}
		for _, m := range regexp.MustCompile(`by \(([a-z, ]+)\) \([^)]*?(weir_[a-z_]+)`).FindAllStringSubmatch(e, -1) {
			for l := range strings.SplitSeq(m[1], ", ") {
				if !slices.Contains(strings.Split(want[m[2]][1], ","), l) {
					t.Errorf("%s: %s has no label %s", where, m[2], l)
				}
			}
		}
	}
	for name := range want {
		if regexp.MustCompile("^weir_(states|dial|peers|handshakes|pods|pod|endpoint|packets|bytes|sweep)").MatchString(name) && !asked[name] {
			t.Errorf("nothing looks at %s", name)
		}
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		if out, err := exec.Command(promtool, "check", "rules",
			filepath.Join("..", "dist", "monitoring", "alerts.yml")).CombinedOutput(); err != nil {
			t.Errorf("promtool: %s", out)
		}
	}
}
