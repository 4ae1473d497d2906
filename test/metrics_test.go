package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented reads the table of docs/metrics.md: type and labels by name.
func documented(t *testing.T) map[string][2]string {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][2]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)(?:\\{([a-z,_]+)\\})?` \\| (counter|gauge) \\|").FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = [2]string{m[3], m[2]}
	}
	return all
}

// TestMetricsAreAsDocumented: what a node serves is what docs/metrics.md lists, and follows the conventions that promlint checks.
func TestMetricsAreAsDocumented(t *testing.T) {
	need(t, "curl")
	p := newPair(t)
	config := p.file("m.toml", "[observe]\nmetrics = \"127.0.0.1:9642\"\n")
	p.start("--config", config, "--iface", "eth0", "--rules", p.file("watched", watchedRules))
	knock(t, p, 81)
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
	if out, _ := p.server.Command("curl", "-sS", "http://127.0.0.1:9642/v1/rules").Output(); strings.Contains(string(out), "deny") {
		t.Error("the address of the metrics serves more than metrics")
	}
	if dir := os.Getenv("WEIR_SCRAPE"); dir != "" {
		os.WriteFile(dir, text, 0o644)
	}
	want, served := documented(t), map[string]bool{}
	var kind, help string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		words := strings.SplitN(line, " ", 4)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			help = words[2]
			if len(words) < 4 || !strings.HasSuffix(words[3], ".") {
				t.Errorf("no sentence: %s", line)
			}
		case strings.HasPrefix(line, "# TYPE "):
			kind = words[3]
			if words[2] != help || served[help] {
				t.Errorf("%s comes twice or without help", words[2])
			}
			served[help] = true
			lint(t, help, kind)
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
			for _, l := range regexp.MustCompile(`([a-z_]+)="[^"]*"`).FindAllStringSubmatch(m[2], -1) {
				labels = append(labels, l[1])
			}
			if strings.Join(labels, ",") != want[help][1] {
				t.Errorf("%s has labels %v, documented are %q", help, labels, want[help][1])
			}
			if strings.Contains(m[2], "10.66.") {
				t.Errorf("an address in a label: %s", line)
			}
		}
	}
	for name := range want {
		if !served[name] {
			t.Errorf("%s is documented and not served", name)
		}
	}
}

// lint checks a name as promlint does.
func lint(t *testing.T, name, kind string) {
	t.Helper()
	if strings.HasSuffix(name, "_total") != (kind == "counter") {
		t.Errorf("%s is a %s: counters, and only they, end in _total", name, kind)
	}
	parts := strings.Split(strings.TrimSuffix(name, "_total"), "_")
	for _, bad := range []string{"counter", "gauge", "ms", "sec", "millis", "milliseconds", "minutes", "kb", "kib", "mb", "bits", "percent", "count", "sum", "bucket"} {
		if slices.Contains(parts, bad) {
			t.Errorf("%s: %q is no base unit, or names the type", name, bad)
		}
	}
	for _, unit := range []string{"seconds", "bytes"} {
		if i := slices.Index(parts, unit); i >= 0 && i != len(parts)-1 {
			t.Errorf("%s: the unit is not last", name)
		}
	}
}

// TestDashboardAndAlertsMatch: every metric that the dashboard and the alerts ask for is one that a node serves, with labels that it has.
func TestDashboardAndAlertsMatch(t *testing.T) {
	want := documented(t)
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
	for _, m := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(string(alerts), -1) {
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
			for _, l := range strings.Split(m[1], ", ") {
				if !slices.Contains(strings.Split(want[m[2]][1], ","), l) {
					t.Errorf("%s: %s has no label %s", where, m[2], l)
				}
			}
		}
	}
	for name := range want {
		if strings.HasPrefix(name, "weir_states") && !asked[name] {
			t.Errorf("nothing looks at %s", name)
		}
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		if out, err := exec.Command(promtool, "check", "rules", filepath.Join("..", "dist", "monitoring", "alerts.yml")).CombinedOutput(); err != nil {
			t.Errorf("promtool: %s", out)
		}
	}
}
