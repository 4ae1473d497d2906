package test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/pcap"
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

// TestViewsAgree: after traffic of every kind, the live list, the history, top, the metrics and the counters of the rules tell the same
// numbers. A view that misses events would say so; here none may.
func TestViewsAgree(t *testing.T) {
	need(t, "curl")
	p := newPair(t)
	short := p.file("short.toml", "[timeouts]\nudp = 2\nudp_reply = 2\n")
	p.start("--config", short, "--iface", "eth0", "--rules", p.file("watched", watchedRules))
	p.weir("fw", "zero")
	live := p.watch("--since", "0s")
	traffic(t, p)

	var rules api.Rules
	var top api.Top
	p.json(&rules, "fw", "show")
	p.json(&top, "flow", "top")
	metrics := p.scrape()
	past := parse(t, p.weir("flow", "watch", "-j", "--since", "1h", "--past"))
	seen := live()
	for name, events := range map[string][]observe.Event{"live": seen, "history": past} {
		refused, forward := map[uint16]uint64{}, map[uint16]uint64{}
		kinds := map[firewall.EventKind]uint64{}
		for _, e := range events {
			if e.Lost > 0 {
				t.Errorf("%s: %d events were lost", name, e.Lost)
			}
			kinds[e.Kind]++
			if e.Refused() {
				refused[e.Verdict.Rule]++
			}
			if e.Kind == firewall.EventEnd {
				forward[e.Verdict.Rule] += e.Packets[0] + e.Packets[1]
			}
		}
		for _, r := range rules.Rules {
			switch r.Number {
			case 150, 160, 65535:
				if refused[r.Number] != r.Packets || r.Packets == 0 {
					t.Errorf("%s: %d packets dropped by rule %d, which counts %d", name, refused[r.Number], r.Number, r.Packets)
				}
			case 100, 110:
				if forward[r.Number] != r.Packets || r.Packets == 0 {
					t.Errorf("%s: states of rule %d ended with %d packets, the rule counts %d", name, r.Number, forward[r.Number], r.Packets)
				}
			}
		}
		if refused[170] != uint64(metrics[`weir_packets_total{reason="limit"}`]) || refused[170] == 0 {
			t.Errorf("%s: rule 170 refused %d, the metrics say %v", name, refused[170], metrics[`weir_packets_total{reason="limit"}`])
		}
		if kinds[firewall.EventStart] != uint64(metrics["weir_states_created_total"]) {
			t.Errorf("%s: %d states began, the metrics say %v", name, kinds[firewall.EventStart], metrics["weir_states_created_total"])
		}
		if want := kinds[firewall.EventDrop] + kinds[firewall.EventRefuse]; top.Refused.Packets != want {
			t.Errorf("%s: %d packets refused, top says %d", name, want, top.Refused.Packets)
		}
		for k, n := range kinds {
			word := observe.KindName(k)
			in, out := metrics[`weir_events_total{kind="`+word+`",hook="in"}`], metrics[`weir_events_total{kind="`+word+`",hook="out"}`]
			if top.Events[word] != n || uint64(in+out) != n {
				t.Errorf("%s: %d events %s, top says %d, the metrics %v", name, n, word, top.Events[word], in+out)
			}
		}
	}
	for _, r := range rules.Rules {
		if got := metrics[fmt.Sprintf(`weir_rule_packets_total{rule="%d"}`, r.Number)]; got != float64(r.Packets) {
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
	go serveEcho(l)
	limited, err := p.server.Listen("tcp", ":90")
	if err != nil {
		t.Fatal(err)
	}
	defer limited.Close()
	go serveEcho(limited)
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
			c.Write([]byte("datagram")) // ICMP errors that come back are no matter
		}
		c.Close()
	}
	for _, port := range []int{81, 81, 82} {
		knock(t, p, port)
	}
	var held []net.Conn
	for range 2 {
		c, err := p.client.DialContext(t.Context(), "tcp", "10.66.0.1:90")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	knock(t, p, 90)
	for _, c := range held {
		c.Close()
	}
	within(t, 20*time.Second, "all states end", func() error {
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

// knock tries to connect where the rules refuse it.
func knock(t *testing.T, p *pair, port int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if c, err := p.client.DialContext(ctx, "tcp", fmt.Sprintf("10.66.0.1:%d", port)); err == nil {
		c.Close()
		t.Errorf("port %d is open", port)
	}
}

func serveEcho(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			io.Copy(c, c)
			c.Close()
		}()
	}
}

// watch runs `weir flow watch -j` until the returned function is called, which returns what it told.
func (g *guard) watch(args ...string) (stop func() []observe.Event) {
	g.t.Helper()
	cmd := g.node.Command(weir, append([]string{"--root", g.root, "flow", "watch", "-j"}, args...)...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	return func() []observe.Event {
		cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil || talk.Len() > 0 {
			g.t.Errorf("weir flow watch: %v %s", err, talk.String())
		}
		return parse(g.t, out.String())
	}
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
func (g *guard) scrape() map[string]float64 {
	g.t.Helper()
	out, err := exec.Command("curl", "-sS", "--unix-socket", filepath.Join(g.root, "run/weir/weir.sock"), "http://weir/metrics").Output()
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

// TestCaptureSaysWhy: a capture has every packet of a refused and of an allowed connection with rule and verdict, other programs can
// read it, and the events that a replay of it tells are those that the node told.
func TestCaptureSaysWhy(t *testing.T) {
	need(t, "curl", "tcpdump")
	p := newPair(t)
	rules := p.file("watched", watchedRules)
	p.start("--iface", "eth0", "--rules", rules)
	l, err := p.server.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serveEcho(l)
	events := p.watch("tcp")
	p.weir("fw", "zero")
	file := filepath.Join(t.TempDir(), "out.pcapng")
	cmd := p.server.Command(weir, "--root", p.root, "flow", "capture", "-w", file, "tcp")
	var talk bytes.Buffer
	cmd.Stderr = &talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	c, err := p.client.DialContext(t.Context(), "tcp", "10.66.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "hello")
	io.ReadFull(c, make([]byte, 5))
	c.Close()
	knock(t, p, 81)
	time.Sleep(300 * time.Millisecond)
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil || !strings.Contains(talk.String(), " 0 left out") {
		t.Errorf("%v %s", err, talk.String())
	}
	var counters api.Rules
	p.json(&counters, "fw", "show")
	comments := readComments(t, file)
	for comment, number := range map[string]uint16{
		"weir: drop by rule 150, reason rule, hook in recv eth0: deny tcp from any to me 81": 150,
		"weir: pass by rule 100, reason rule, hook":                                          100,
	} {
		for _, r := range counters.Rules {
			if r.Number == number && (countPrefix(comments, comment) != r.Packets || r.Packets == 0) {
				t.Errorf("rule %d counts %d packets; comments: %q", number, r.Packets, comments)
			}
		}
	}
	if out, err := exec.Command("tcpdump", "-nr", file).Output(); err != nil || strings.Count(string(out), "\n") != len(comments) {
		t.Errorf("tcpdump reads %q, %v; %d packets were written", out, err, len(comments))
	}
	var live, again []string
	for _, e := range events() {
		if e.Kind == firewall.EventStart || e.Refused() {
			live = append(live, fmt.Sprint(observe.KindName(e.Kind), e.Proto, e.Src, e.Dst, e.Verdict.Rule, e.Recv))
		}
	}
	for _, e := range parse(t, p.weir("flow", "watch", "-j", "--from", file, "-f", rules, "--me", "10.66.0.1")) {
		if e.Kind == firewall.EventStart || e.Refused() {
			again = append(again, fmt.Sprint(observe.KindName(e.Kind), e.Proto, e.Src, e.Dst, e.Verdict.Rule, e.Recv))
		}
	}
	if len(live) < 2 || !slices.Equal(live, again) {
		t.Errorf("the node told\n%s\nthe capture tells\n%s", strings.Join(live, "\n"), strings.Join(again, "\n"))
	}
}

func countPrefix(all []string, prefix string) (n uint64) {
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func readComments(t *testing.T, file string) (all []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec.Comment)
	}
}

// TestPageServes: `weir page` passes on what the node says to whoever has the token, as it happens, and ends with its signal.
func TestPageServes(t *testing.T) {
	need(t, "curl")
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("watched", watchedRules))
	cmd := p.server.Command(weir, "--root", p.root, "page")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	done := background(t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, token, _ := strings.Cut(strings.TrimSpace(line), "/#")
	ask := func(path string, more ...string) string {
		t.Helper()
		got, err := curl(p.server, append([]string{address + path}, more...)...)
		if err != nil {
			t.Error(err)
		}
		return got
	}
	auth := []string{"-H", "Authorization: Bearer " + token}
	if got := ask("/"); !strings.Contains(got, "<title>Weir</title>") {
		t.Errorf("the page is %q", got)
	}
	if got := ask("/v1/rules"); !strings.Contains(got, "token") {
		t.Errorf("without a token: %q", got)
	}
	if got := ask("/v1/rules", auth...); !strings.Contains(got, "deny tcp from any to me 81") {
		t.Errorf("rules: %q", got)
	}
	if got := ask("/v1/do", append(auth, "-d", `{"line":"flush"}`)...); !strings.Contains(got, "not found") {
		t.Errorf("a change was answered %q", got)
	}
	if got := ask("/v1/why", append(auth, "-d", `{"packet":"in via eth0 udp 10.66.0.2:9 -> 10.66.0.1:5353"}`)...); !strings.Contains(got, `"rule":160`) {
		t.Errorf("why: %q", got)
	}
	stream := p.server.Command("curl", "-sSN", "--max-time", "2", address+"/v1/events?filter=deny+udp", auth[0], auth[1])
	var events bytes.Buffer
	stream.Stdout = &events
	if err := stream.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	c, err := p.client.DialContext(t.Context(), "udp", "10.66.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("datagram"))
	c.Close()
	stream.Wait() // curl ends by its time limit
	if all := parse(t, events.String()); len(all) != 1 || all[0].Verdict.Rule != 160 {
		t.Errorf("events: %q", events.String())
	}
	socket := []string{"--unix-socket", filepath.Join(p.root, "run/weir/weir.sock")}
	for header, want := range map[string]string{"Host: localhost:8080": "<title>Weir", "Host: evil.example": "not known here", "Origin: http://evil.example": "other sites"} {
		if got, _ := curl(p.server, append(socket, "-H", header, "http://weir/")...); !strings.Contains(got, want) {
			t.Errorf("on the socket with %s: %q", header, got)
		}
	}
	cmd.Process.Signal(syscall.SIGINT)
	if err := <-done; err != nil {
		t.Errorf("weir page: %v", err)
	}
}

// TestRatesAndBundle: fw show -r tells rates and rules that were never hit, and a bundle has what a bug report needs but for secrets and
// addresses.
func TestRatesAndBundle(t *testing.T) {
	need(t, "curl")
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("etc/weir/rules", watchedRules))
	c, err := p.client.DialContext(t.Context(), "udp", "10.66.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				c.Write([]byte("datagram"))
			}
		}
	})
	out := p.weir("fw", "show", "-r")
	close(stop)
	wg.Wait()
	if !regexp.MustCompile(`(?m)^ *00160 +\d+ +\d+ +\d\d\.\d/s deny udp`).MatchString(out) || !regexp.MustCompile(`(?m)^ *00150 +0 +0 +never deny tcp`).MatchString(out) ||
		!strings.HasPrefix(out, "never: not since 20") {
		t.Errorf("fw show -r:\n%s", out)
	}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	p.weir("doctor", "--bundle", file, "--mask")
	list, err := exec.Command("tar", "-xzOf", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"deny tcp from any to me 81", `weir_rule_packets_total{rule="160"}`, `"kind":"drop"`, "ipv4-", "PRETTY_NAME", `"healthy":true`} {
		if !bytes.Contains(list, []byte(want)) {
			t.Errorf("the bundle lacks %q", want)
		}
	}
	if bytes.Contains(list, []byte("10.66.0.")) {
		t.Error("addresses are not masked")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, talk, err := p.try("doctor", "--bundle", file); err == nil || !strings.Contains(talk, "exists") {
		t.Errorf("a file is overwritten: %v %s", err, talk)
	}
}

// TestEventsNamePods: what a pod is refused is told with its name, and a filter knows the tables of labels.
func TestEventsNamePods(t *testing.T) {
	need(t, "nginx", "curl")
	h := newPodHost(t, "add check-state\nadd allow tcp from me to table(app=web) 80 setup keep-state\n")
	web, webPod := h.attach("web", "--label", "app=web")
	nginx(t, web, 80)
	stranger, _ := h.attach("stranger")
	time.Sleep(1200 * time.Millisecond) // names are looked at every second
	url := "http://" + netip.AddrPortFrom(webPod.Addrs[0], 80).String() + "/"
	refuse(t, stranger, url)
	reach(t, h.host, url)
	seen := parse(t, h.weir("flow", "watch", "-j", "--since", "1m", "--past", "deny tcp to table(app=web)"))
	if len(seen) == 0 {
		t.Fatal("no event")
	}
	for _, e := range seen {
		if e.From != "pod:stranger" || e.To != "pod:web" || e.Recv != "pod:stranger" || e.Verdict.Rule != 65535 || !e.Refused() {
			t.Errorf("%s", e.Text())
		}
	}
	if other := parse(t, h.weir("flow", "watch", "-j", "--since", "1m", "--past", "deny tcp from table(app=web)")); len(other) != 0 {
		t.Errorf("%+v", other)
	}
	var top api.Top
	h.json(&top, "flow", "top")
	if len(top.Refusals) == 0 || top.Refusals[0].SrcName != "pod:stranger" {
		t.Errorf("top: %+v", top.Refusals)
	}
	if out := h.weir("flow", "watch", "--since", "1m", "--past", "deny"); !strings.Contains(out, "pod:stranger(") {
		t.Errorf("%s", out)
	}
}

// TestHistoryOutlivesTheAgent: what happened before the agent was killed is still told by the next one, and so is what happened while there was none.
func TestHistoryOutlivesTheAgent(t *testing.T) {
	need(t, "curl")
	p := newPair(t)
	rules := p.file("watched", watchedRules)
	p.start("--iface", "eth0", "--rules", rules)
	send := func(port int) {
		t.Helper()
		c, err := p.client.DialContext(t.Context(), "udp", fmt.Sprintf("10.66.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("datagram"))
		c.Close()
	}
	send(5353)
	time.Sleep(1200 * time.Millisecond) // the journal is written every second
	p.kill()
	send(5354)
	p.start("--iface", "eth0", "--rules", rules)
	send(5355)
	time.Sleep(300 * time.Millisecond)
	var ports []uint16
	var last time.Time
	for _, e := range parse(t, p.weir("flow", "watch", "-j", "--since", "1h", "--past", "deny udp")) {
		ports = append(ports, e.Dst.Port())
		if e.At.Before(last.Add(-50 * time.Millisecond)) {
			t.Errorf("%s comes after an event of %s", e.Text(), last)
		}
		last = e.At
	}
	if !slices.Equal(ports, []uint16{5353, 5354, 5355}) {
		t.Errorf("told are the ports %v", ports)
	}
	p.weir("down")
	p.wait()
	if _, err := os.Stat(filepath.Join(p.root, "var/lib/weir/events")); !os.IsNotExist(err) {
		t.Errorf("down leaves the history: %v", err)
	}
}
