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
	"github.com/weirnet/weir/observe"
)

// flooded is how many datagrams TestLongViewsAgreeUnderLoad sends to a port that the rules refuse.
const flooded = 100000

// TestLongViewsAgreeUnderLoad: nginx is under load and a flood is refused. The live list, top, the
// page in a real browser, the metrics and the counters of the rules show the same numbers; the list
// reports how many events it missed.
func TestLongViewsAgreeUnderLoad(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "wrk", "curl", "chromium")
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("watched", watchedRules))
	nginx(t, p.server, 80)
	before := p.scrape()
	var v views
	var drops uint64
	live := p.watchUntil(func(events []observe.Event) error {
		return v.addUp(events, drops)
	})
	loadAndFlood(t, p)

	p.json(&v.rules, "fw", "show")
	v.metrics, v.page = p.scrape(), p.dumpPage()
	v.missed = missed(t, p)
	v.created = v.metrics["weir_states_created_total"] - before["weir_states_created_total"]
	v.checkCounters(t)
	drops = v.checkDecisions(t)
	// What the ring has lost is asked for every second.
	eventually(t, "top knows of every drop, or that it missed it", func() error {
		p.json(&v.top, "flow", "top")
		if n := v.top.Refused.Packets; n > drops || n+v.top.Lost < drops {
			return fmt.Errorf("%v packets were dropped, top knows %d and misses %d", drops, n,
				v.top.Lost)
		}
		return nil
	})
	v.checkEvents(t, live(), drops)
	if m := regexp.MustCompile(`(\d+) packets refused`).FindStringSubmatch(v.page); m == nil ||
		m[1] != strconv.FormatUint(v.top.Refused.Packets, 10) {
		t.Errorf("top knows of %d refused packets, the page says %q", v.top.Refused.Packets, m)
	}
}

// loadAndFlood loads nginx and floods a refused port at the same time, and waits until all states
// have ended.
func loadAndFlood(t *testing.T, p *pair) {
	t.Helper()
	flood, err := p.client.DialContext(t.Context(), "udp", "10.66.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	done := make(chan time.Duration, 1)
	go func() {
		began := time.Now()
		for i := range flooded {
			flood.Write([]byte("datagram"))
			if i%100 == 99 {
				time.Sleep(time.Millisecond) // lasts as long as the load on nginx does
			}
		}
		done <- time.Since(began)
	}()
	out, err := p.client.Command("wrk", "-t1", "-c20", "-d2s", "--timeout", "600s",
		"http://10.66.0.1/").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "requests in") ||
		strings.Contains(string(out), "Socket errors") {
		t.Errorf("wrk: %v\n%s", err, out)
	}
	probe(t, p, 81)
	t.Logf("%s; the flood took %v", regexp.MustCompile(`\d+ requests in`).Find(out), <-done)
	eventually(t, "all states end", func() error {
		if m := p.scrape(); m[`weir_states_pool{pool="all"}`] > 0 {
			return fmt.Errorf("%v are left", m[`weir_states_pool{pool="all"}`])
		}
		return nil
	})
}

// views is what a node shows of the same packets in different places.
type views struct {
	rules   api.Rules
	top     api.Top
	metrics map[string]float64
	page    string
	created float64 // states, since the live list began
	missed  uint64  // packets that never came to the rules
}

// missed returns how many packets the kernel has dropped on their way into the server's interface:
// a processor with other work puts off 1,000 at most (net.core.netdev_max_backlog).
func missed(t *testing.T, p *pair) uint64 {
	t.Helper()
	out, err := p.server.Command("cat", "/proc/self/net/dev").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == "eth0:" {
			n, err := strconv.ParseUint(f[4], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("there is no eth0 in\n%s", out)
	return 0
}

// counted is how many packets the rules of each number counted.
func (v *views) counted() map[uint16]uint64 {
	all := map[uint16]uint64{}
	for _, r := range v.rules.Rules {
		all[r.Number] += r.Packets
	}
	return all
}

// checkCounters compares the counters of the rules with metrics and page.
func (v *views) checkCounters(t *testing.T) {
	t.Helper()
	for _, r := range v.rules.Rules {
		if got := v.metrics[fmt.Sprintf(`weir_rule_packets_total{rule="%d"}`,
			r.Number)]; got != float64(r.Packets) {
			t.Errorf("rule %d counts %d, the metrics say %v", r.Number, r.Packets, got)
		}
		row := fmt.Sprintf(`<td class="num">(<button[^>]*>)?%d(</button>)?</td>`+
			`<td class="num">%d</td>`, r.Number, r.Packets)
		if !regexp.MustCompile(row).MatchString(v.page) {
			t.Errorf("the page does not say that rule %d counts %d", r.Number, r.Packets)
		}
	}
	counted := v.counted()
	if n := counted[160]; n > flooded || n+v.missed < flooded || counted[100] == 0 ||
		counted[150] == 0 {
		t.Errorf("%d were flooded and %d missed; the rules count %v", flooded, v.missed, counted)
	}
}

// checkDecisions compares the counters of the rules with those of decisions, and returns how many
// packets were dropped.
func (v *views) checkDecisions(t *testing.T) uint64 {
	t.Helper()
	counted, ruled := v.counted(), 0.0
	for _, n := range counted {
		ruled += float64(n)
	}
	dropped := counted[150] + counted[160] + counted[65535]
	if got := v.metrics[`weir_packets_total{verdict="drop",reason="rule",hook="in"}`]; got != float64(dropped) {
		t.Errorf("the rules dropped %d, the metrics say %v", dropped, got)
	}
	decided, drops := 0.0, 0.0
	for name, n := range v.metrics {
		if strings.HasPrefix(name, "weir_packets_total{") &&
			strings.Contains(name, `reason="rule"`) {
			decided += n
		}
		if strings.HasPrefix(name, `weir_packets_total{verdict="drop"`) {
			drops += n
		}
	}
	if decided != ruled {
		t.Errorf("rules decided %v packets, their counters make %v", decided, ruled)
	}
	return uint64(drops)
}

// addUp reports whether the events received and those lost are as many as there were.
func (v *views) addUp(events []observe.Event, drops uint64) error {
	var came, lost uint64
	for _, e := range events {
		lost += e.Lost
		if e.Kind != 0 {
			came++
		}
	}
	if want := drops + 2*uint64(v.created); came+lost != want {
		return fmt.Errorf("%d events came and %d were lost, but %v drops and %v states make %d",
			came, lost, drops, v.created, want)
	}
	return nil
}

// checkEvents adds up the events received and those lost.
func (v *views) checkEvents(t *testing.T, events []observe.Event, drops uint64) {
	t.Helper()
	counted := v.counted()
	var lost, refused uint64
	byRule, forward := map[uint16]uint64{}, map[uint16]uint64{}
	for _, e := range events {
		lost += e.Lost
		if e.Kind == 0 {
			continue
		}
		if e.Kind == firewall.EventDrop || e.Kind == firewall.EventRefuse {
			refused++
		}
		if e.Refused() {
			byRule[e.Verdict.Rule]++
		}
		if e.Kind == firewall.EventEnd {
			forward[e.Verdict.Rule] += e.Packets[0] + e.Packets[1]
		}
	}
	t.Logf("%d entries, %d events lost; %v states", len(events), lost, v.created)
	if err := v.addUp(events, drops); err != nil {
		t.Error(err)
	}
	if refused > drops || refused+lost < drops {
		t.Errorf("%v packets were dropped, %d have events and %d events were lost", drops, refused,
			lost)
	}
	if lost > 0 {
		return
	}
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
