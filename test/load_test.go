package test

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// TestViewsAgreeUnderLoad: while nginx is under load and a flood is refused, the live list, top,
// the page in a real browser, the metrics and the counters of the rules show the same numbers; the
// list reports how many events it missed.
func TestViewsAgreeUnderLoad(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "wrk", "curl", "chromium")
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("watched", watchedRules))
	nginx(t, p.server, 80)
	before := p.scrape()
	live := p.watch()

	flood, err := p.client.DialContext(t.Context(), "udp", "10.66.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	const sent = 100000
	flooded := make(chan time.Duration, 1)
	go func() {
		began := time.Now()
		for i := range sent {
			flood.Write([]byte("datagram"))
			if i%100 == 99 {
				time.Sleep(time.Millisecond) // lasts as long as the load on nginx does
			}
		}
		flooded <- time.Since(began)
	}()
	out, err := p.client.Command("wrk", "-t1", "-c20", "-d2s", "http://10.66.0.1/").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "requests in") ||
		strings.Contains(string(out), "Socket errors") {
		t.Errorf("wrk: %v\n%s", err, out)
	}
	probe(t, p, 81)
	t.Logf("%s; the flood took %v", regexp.MustCompile(`\d+ requests in`).Find(out), <-flooded)
	eventually(t, "all states end", func() error {
		if m := p.scrape(); m[`weir_states_pool{pool="all"}`] > 0 {
			return fmt.Errorf("%v are left", m[`weir_states_pool{pool="all"}`])
		}
		return nil
	})
	time.Sleep(1100 * time.Millisecond) // what the ring has lost is asked for every second

	var rules api.Rules
	var top api.Top
	p.json(&rules, "fw", "show")
	p.json(&top, "flow", "top")
	metrics := p.scrape()
	page := p.dumpPage()
	counted := map[uint16]uint64{}
	ruled := 0.0
	for _, r := range rules.Rules {
		counted[r.Number] += r.Packets
		ruled += float64(r.Packets)
		if got := metrics[fmt.Sprintf(`weir_rule_packets_total{rule="%d"}`,
			r.Number)]; got != float64(r.Packets) {
			t.Errorf("rule %d counts %d, the metrics say %v", r.Number, r.Packets, got)
		}
		if !strings.Contains(page, fmt.Sprintf(`<td class="num">%d</td><td class="num">%d</td>`,
			r.Number, r.Packets)) {
			t.Errorf("the page does not say that rule %d counts %d", r.Number, r.Packets)
		}
	}
	if counted[160] != sent || counted[100] == 0 || counted[150] == 0 {
		t.Errorf("%d were flooded; the rules count %v", sent, counted)
	}
	dropped := counted[150] + counted[160] + counted[65535]
	if got := metrics[`weir_packets_total{verdict="drop",reason="rule",hook="in"}`]; got != float64(dropped) {
		t.Errorf("the rules dropped %d, the metrics say %v", dropped, got)
	}
	decided, drops := 0.0, 0.0
	for name, v := range metrics {
		if strings.HasPrefix(name, "weir_packets_total{") &&
			strings.Contains(name, `reason="rule"`) {
			decided += v
		}
		if strings.HasPrefix(name, `weir_packets_total{verdict="drop"`) {
			drops += v
		}
	}
	if decided != ruled {
		t.Errorf("rules decided %v packets, their counters make %v", decided, ruled)
	}

	// The events received and those lost add up.
	reported, lost := map[firewall.EventKind]uint64{}, uint64(0)
	byRule, forward := map[uint16]uint64{}, map[uint16]uint64{}
	all := uint64(0)
	for _, e := range live() {
		lost += e.Lost
		if e.Kind == 0 {
			continue
		}
		all++
		reported[e.Kind]++
		if e.Refused() {
			byRule[e.Verdict.Rule]++
		}
		if e.Kind == firewall.EventEnd {
			forward[e.Verdict.Rule] += e.Packets[0] + e.Packets[1]
		}
	}
	created := metrics["weir_states_created_total"] - before["weir_states_created_total"]
	if want := uint64(drops) + 2*uint64(created); all+lost != want {
		t.Errorf("%d events came and %d were lost, but %v drops and %v states make %d", all, lost,
			drops, created, want)
	}
	t.Logf("%d events, %d lost; %v states", all, lost, created)
	refused := reported[firewall.EventDrop] + reported[firewall.EventRefuse]
	if lost == 0 {
		for _, rule := range []uint16{150, 160, 65535} {
			if byRule[rule] != counted[rule] {
				t.Errorf("rule %d dropped %d, events are %d", rule, counted[rule], byRule[rule])
			}
		}
		if forward[100] != counted[100] {
			t.Errorf("states of rule 100 ended with %d packets, the rule counts %d", forward[100],
				counted[100])
		}
	}
	if refused > uint64(drops) || refused+lost < uint64(drops) {
		t.Errorf("%v packets were dropped, %d have events and %d events were lost", drops, refused,
			lost)
	}
	if top.Refused.Packets > uint64(drops) || top.Refused.Packets+top.Lost < uint64(drops) {
		t.Errorf("%v packets were dropped, top knows %d and misses %d", drops, top.Refused.Packets,
			top.Lost)
	}
	if m := regexp.MustCompile(`(\d+) packets refused`).FindStringSubmatch(page); m == nil ||
		m[1] != strconv.FormatUint(top.Refused.Packets, 10) {
		t.Errorf("top knows of %d refused packets, the page says %q", top.Refused.Packets, m)
	}
}

// dumpPage returns what the page has become in a real browser that looked at it for some seconds.
func (p *pair) dumpPage() string {
	p.t.Helper()
	cmd := p.server.Command(weir, "--root", p.root, "page")
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	background(p.t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	home := nstest.TempDir(p.t)
	browser := p.server.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
		"--user-data-dir="+filepath.Join(home, "profile"), "--virtual-time-budget=4000",
		"--dump-dom", strings.TrimSpace(line))
	browser.Env = append(exec.Command("true").Environ(), "HOME="+home)
	text, err := browser.Output()
	cmd.Process.Signal(syscall.SIGINT)
	if err != nil {
		p.t.Fatalf("chromium: %v", err)
	}
	return string(text)
}
