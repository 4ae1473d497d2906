package test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/observe"
)

// watchedRules has one rule of each kind that a view could get wrong.
const watchedRules = `add 1 check-state
add 100 allow tcp from any to me 80 setup keep-state
add 110 allow udp from any to me 53 keep-state
add 150 deny tcp from any to me 81
add 160 deny udp from any to me 5353
add 170 allow tcp from any to me 90 setup limit src-addr 2
`

// eventCounts is what a list of events says in numbers.
type eventCounts struct {
	refused, forward map[uint16]uint64 // packets by rule: refused, and in states that ended
	kinds            map[firewall.EventKind]uint64
	lost             uint64
}

func countEvents(events []observe.Event) eventCounts {
	c := eventCounts{map[uint16]uint64{}, map[uint16]uint64{}, map[firewall.EventKind]uint64{}, 0}
	for _, e := range events {
		c.lost += e.Lost
		c.kinds[e.Kind]++
		if e.Refused() {
			c.refused[e.Verdict.Rule]++
		}
		if e.Kind == firewall.EventEnd {
			c.forward[e.Verdict.Rule] += e.Packets[0] + e.Packets[1]
		}
	}
	return c
}

// agreesWithRules compares events with the counters of watchedRules.
func (c eventCounts) agreesWithRules(t *testing.T, name string, rules api.Rules) {
	t.Helper()
	for _, r := range rules.Rules {
		switch r.Number {
		case 150, 160, 65535:
			if c.refused[r.Number] != r.Packets || r.Packets == 0 {
				t.Errorf("%s: %d packets dropped by rule %d, which counts %d", name,
					c.refused[r.Number], r.Number, r.Packets)
			}
		case 100, 110:
			if c.forward[r.Number] != r.Packets || r.Packets == 0 {
				t.Errorf("%s: states of rule %d ended with %d packets, the rule counts %d",
					name, r.Number, c.forward[r.Number], r.Packets)
			}
		}
	}
}

// limitedMetric is how many packets a limit refused a state.
const limitedMetric = `weir_packets_total{verdict="drop",reason="limit",hook="in"}`

// agreesWithMetrics compares events with the metrics and with top.
func (c eventCounts) agreesWithMetrics(t *testing.T, name string, metrics map[string]float64,
	top api.Top) {
	limited := uint64(metrics[limitedMetric])
	if c.refused[170] != limited || limited == 0 {
		t.Errorf("%s: rule 170 refused %d, the metrics say %v", name, c.refused[170], limited)
	}
	if c.kinds[firewall.EventStart] != uint64(metrics["weir_states_created_total"]) {
		t.Errorf("%s: %d states began, the metrics say %v", name, c.kinds[firewall.EventStart],
			metrics["weir_states_created_total"])
	}
	if want := c.kinds[firewall.EventDrop] +
		c.kinds[firewall.EventRefuse]; top.Refused.Packets != want {
		t.Errorf("%s: %d packets refused, top says %d", name, want, top.Refused.Packets)
	}
	for k, n := range c.kinds {
		word := observe.KindName(k)
		in, out := metrics[`weir_events_total{kind="`+word+`",hook="in"}`],
			metrics[`weir_events_total{kind="`+word+`",hook="out"}`]
		if top.Events[word] != n || uint64(in+out) != n {
			t.Errorf("%s: %d events %s, top says %d, the metrics %v", name, n, word,
				top.Events[word], in+out)
		}
	}
}

// TestViewsAgree: after traffic of every kind, the live list, the history, top, the metrics and the
// counters of the rules tell the same numbers. A view that misses events would say so; here none
// may.
func TestViewsAgree(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	p := newPair(t)
	short := p.file("short.toml", "[timeouts]\nudp = 2\nudp_reply = 2\n")
	p.start("--config", short, "--iface", "eth0", "--rules", p.file("watched", watchedRules))
	p.weir("fw", "zero")
	counted := p.counted(100, 110, 150, 160, 65535)
	live := p.watchUntil(func(events []observe.Event) error {
		c, m := countEvents(events), p.scrape()
		created, refused := uint64(m["weir_states_created_total"]), uint64(m[limitedMetric])
		if c.kinds[firewall.EventStart] != created || c.kinds[firewall.EventEnd] != created ||
			c.refused[170] != refused {
			return fmt.Errorf("%d states were created and %d packets above the limit: %v", created,
				refused, c)
		}
		return counted(events)
	})
	traffic(t, p)
	seen := live()

	var rules api.Rules
	var top api.Top
	p.json(&rules, "fw", "show")
	p.json(&top, "flow", "top")
	metrics := p.scrape()
	past := parse(t, p.weir("flow", "watch", "-j", "--since", "1h", "--past"))
	for name, events := range map[string][]observe.Event{"live": seen, "history": past} {
		c := countEvents(events)
		if c.lost > 0 {
			t.Errorf("%s: %d events were lost", name, c.lost)
		}
		c.agreesWithRules(t, name, rules)
		c.agreesWithMetrics(t, name, metrics, top)
	}
	for _, r := range rules.Rules {
		if got := metrics[fmt.Sprintf(`weir_rule_packets_total{rule="%d"}`,
			r.Number)]; got != float64(r.Packets) {
			t.Errorf("rule %d counts %d, the metrics say %v", r.Number, r.Packets, got)
		}
	}
	sum := top.Others.Packets
	for _, r := range top.Refusals {
		sum += r.Packets
	}
	if sum != top.Refused.Packets {
		t.Errorf("the rows of top make %d, its sum is %d", sum, top.Refused.Packets)
	}
}

// traffic sends some of everything and waits until its states have ended.
func traffic(t *testing.T, p *pair) {
	t.Helper()
	l, err := p.server.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go nstest.Echo(l)
	limited, err := p.server.Listen("tcp", ":90")
	if err != nil {
		t.Fatal(err)
	}
	defer limited.Close()
	go nstest.Echo(limited)
	for range 10 {
		for _, host := range []string{"10.66.0.1:80", "[fd66::1]:80"} {
			c, err := p.client.DialContext(t.Context(), "tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(c, "hello")
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
				t.Error(err)
			}
			c.Close()
		}
	}
	for port, times := range map[int]int{53: 1, 5353: 20, 5354: 15} {
		c, err := p.client.DialContext(t.Context(), "udp", fmt.Sprintf("10.66.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		for range times {
			c.Write([]byte("datagram")) // ICMP errors that come back do not matter
		}
		c.Close()
	}
	for _, port := range []int{81, 81, 82} {
		probe(t, p, port)
	}
	var held []net.Conn
	for range 2 {
		c, err := p.client.DialContext(t.Context(), "tcp", "10.66.0.1:90")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	probe(t, p, 90)
	for _, c := range held {
		c.Close()
	}
	eventually(t, "all states end", func() error {
		var s api.States
		if p.json(&s, "fw", "states"); len(s.States) > 0 {
			return fmt.Errorf("%d are left", len(s.States))
		}
		if m := p.scrape(); m[`weir_states_pool{pool="all"}`] > 0 {
			return fmt.Errorf("%v wait for the sweep", m[`weir_states_pool{pool="all"}`])
		}
		return nil
	})
}

// probe tries to connect where the rules refuse it. It has sent a SYN, however long it has to wait
// for its turn.
func probe(t *testing.T, p *pair, port int) {
	t.Helper()
	if err := p.client.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
			0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrInet4{Port: port, Addr: [4]byte{10, 66, 0, 1}}
		if err := unix.Connect(fd, to); err != unix.EINPROGRESS {
			return fmt.Errorf("connect: %v", err)
		}
		time.Sleep(1500 * time.Millisecond)
		if _, err := unix.Getpeername(fd); err != unix.ENOTCONN {
			return fmt.Errorf("port %d is open: %v", port, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// counted returns a condition for watchUntil: the packets that were refused by these rules, or
// passed by states of theirs that have ended, are as many as the rules count.
func (g *agentNode) counted(rules ...uint16) func([]observe.Event) error {
	return func(events []observe.Event) error {
		var shown api.Rules
		g.json(&shown, "fw", "show")
		told := map[uint16]uint64{}
		for _, e := range events {
			switch {
			case e.Refused():
				told[e.Verdict.Rule]++
			case e.Kind == firewall.EventEnd:
				told[e.Verdict.Rule] += e.Packets[0] + e.Packets[1]
			}
		}
		for _, r := range shown.Rules {
			if slices.Contains(rules, r.Number) && told[r.Number] != r.Packets {
				return fmt.Errorf("rule %d counts %d packets, events tell %d", r.Number, r.Packets,
					told[r.Number])
			}
		}
		return nil
	}
}

// watchUntil runs `weir flow watch -j` until the returned function is called, which returns the
// events that it printed. These are what has happened from now on, however late the program gets to
// it. The function waits until enough has come, and then nothing for a second.
func (g *agentNode) watchUntil(enough func([]observe.Event) error,
	args ...string) (stop func() []observe.Event) {
	g.t.Helper()
	begin := time.Now().Add(-100 * time.Millisecond).Format(time.RFC3339Nano) // two clocks
	cmd := g.node.Command(weir, append([]string{"--root", g.root, "flow", "watch", "-j", "--since",
		begin}, args...)...)
	var stderr bytes.Buffer
	out := new(growing)
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	return func() []observe.Event {
		eventually(g.t, "enough events come", func() error {
			text := out.String()
			return enough(parse(g.t, text[:strings.LastIndexByte(text, '\n')+1]))
		})
		eventually(g.t, "the events end", func() error {
			before := out.size()
			time.Sleep(time.Second)
			if now := out.size(); now > before {
				return fmt.Errorf("%d bytes came within a second", now-before)
			}
			return nil
		})
		cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
			g.t.Errorf("weir flow watch: %v %s", err, stderr.String())
		}
		return parse(g.t, out.String())
	}
}

// growing is what a program has written so far.
type growing struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (g *growing) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(b)
}

func (g *growing) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Len()
}

func (g *growing) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

func parse(t *testing.T, text string) (all []observe.Event) {
	t.Helper()
	for e, err := range observe.ReadStream(strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// scrape reads the metrics from the socket.
func (g *agentNode) scrape() map[string]float64 {
	g.t.Helper()
	out, err := exec.Command("curl", "-sS", "--unix-socket",
		filepath.Join(g.root, "run/weir/weir.sock"), "http://localhost/metrics").Output()
	if err != nil {
		g.t.Fatalf("scrape: %v", err)
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		if line[0] == '#' {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if all[name], err = strconv.ParseFloat(value, 64); err != nil {
			g.t.Fatal(err)
		}
	}
	return all
}
