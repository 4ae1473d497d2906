package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// pair is a client and a guarded server:
//
//	client  eth0 ------ eth0  server
//	10.66.0.2           10.66.0.1
//	fd66::2             fd66::1
type pair struct {
	client, server *nstest.Node
	*agentNode
}

func newPair(t *testing.T) *pair {
	t.Helper()
	lab := nstest.New(t)
	p := &pair{client: lab.Node("client"), server: lab.Node("server")}
	lab.Join(p.client, "eth0", "10.66.0.2/24 fd66::2/64", p.server, "eth0",
		"10.66.0.1/24 fd66::1/64")
	p.agentNode = newAgentNode(t, p.server)
	return p
}

// webRules is examples/web.rules.
func webRules(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../examples/web.rules")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWebServer: a real nginx behind examples/web.rules serves port 80 over both families, nothing
// answers on port 81, and what is opened from inside gets its answers.
func TestWebServer(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl", "tcpdump")
	p := newPair(t)
	nginx(t, p.server, 80, 81)
	nginx(t, p.client, 80)
	p.start("--config", p.file("fin.toml", closedStay), "--iface", "eth0", "--rules", webRules(t))
	sniffer := capture(t, p.server, "eth0")
	p.weir("fw", "zero")

	for _, host := range []string{"10.66.0.1", "[fd66::1]"} {
		reach(t, p.client, "http://"+host+"/")
		hasState(t, p, host, 101)
		refuse(t, p.client, "http://"+host+":81/")
		const requests = 1000
		out, err := get(p.client, "--parallel", "--parallel-max", "10",
			fmt.Sprintf("http://%s/?[1-%d]", host, requests))
		if n := strings.Count(out, "hello from nginx\n"); err != nil || n != requests {
			t.Errorf("%d of %d requests are answered: %v", n, requests, err)
		}
	}
	for _, host := range []string{"10.66.0.2", "[fd66::2]"} {
		reach(t, p.server, "http://"+host+"/")
		hasState(t, p, host, 201)
	}
	// Counters that are the same before and after a mark are those of the packets before it.
	var shown api.Rules
	mark := int64(0)
	eventually(t, "no rule counts a packet for a moment", func() error {
		var again api.Rules
		p.json(&shown, "fw", "show")
		mark = sniffer.mark()
		p.json(&again, "fw", "show")
		if !slices.EqualFunc(shown.Rules, again.Rules, sameCounters) {
			return fmt.Errorf("%+v, then %+v", shown.Rules, again.Rules)
		}
		return nil
	})
	matchCapture(t, p, sniffer.stopAt(mark), shown)
}

// closedStay are settings with which states of closed connections stay until a test has seen them.
const closedStay = "[timeouts]\nfin = 600\n"

func sameCounters(a, b api.Rule) bool { return a.Packets == b.Packets && a.Bytes == b.Bytes }

// hasState makes sure that a state of a rule for a TCP connection to port 80 of a host is listed.
func hasState(t *testing.T, p *pair, host string, rule uint16) {
	t.Helper()
	var states api.States
	p.json(&states, "fw", "states")
	for _, s := range states.States {
		if s.Proto == "tcp" && s.To == host+":80" && s.Rule == rule && s.Packets[0] > 3 &&
			s.Packets[1] > 2 && s.Bytes[0] > 200 &&
			s.LeftSeconds > 0 && s.AgeSeconds < 60 {
			return
		}
	}
	t.Errorf("no state of rule %d to %s:80 in %+v", rule, host, states.States)
}

// replayed is the answer of `weir fw replay -q -j`.
type replayed struct {
	Sum struct {
		Packets, Passed int
		Rules           []api.Rule
		Reasons         map[string]uint64
	}
}

// matchCapture evaluates what tcpdump saw on the server's interface again, offline, and compares it
// with what the kernel counted: packets and bytes of every rule, and so all of them. tcpdump sees
// what comes in before the rules and what goes out after them; nothing that goes out is dropped
// here. Counts are per buffer, which segmentation offload can make larger than a packet, for both
// alike.
func matchCapture(t *testing.T, p *pair, file string, shown api.Rules) {
	t.Helper()
	var r replayed
	args := []string{"fw", "replay", "-q", "-f", webRules(t)}
	for _, a := range addresses(t, p.server) {
		args = append(args, "--me", a)
	}
	p.json(&r, append(args, file)...)
	if len(r.Sum.Rules) != len(shown.Rules) {
		t.Fatalf("replay knows %d rules, the node %d", len(r.Sum.Rules), len(shown.Rules))
	}
	var counted, beside uint64
	for i, kernel := range shown.Rules {
		soft := r.Sum.Rules[i]
		if soft.Number != kernel.Number || soft.Packets != kernel.Packets ||
			soft.Bytes != kernel.Bytes {
			t.Errorf("rule %d: the kernel counted %d packets and %d bytes, the replay %d and %d "+
				"(rule %d)",
				kernel.Number, kernel.Packets, kernel.Bytes, soft.Packets, soft.Bytes, soft.Number)
		}
		counted += kernel.Packets
	}
	for _, n := range r.Sum.Reasons {
		beside += n
	}
	if counted < 1000 || counted+beside != uint64(r.Sum.Packets) {
		t.Errorf("rules counted %d packets, %d were decided otherwise, and tcpdump saw %d: %v",
			counted, beside, r.Sum.Packets, r.Sum.Reasons)
	}
}

// addresses lists the addresses of a node.
func addresses(t *testing.T, n *nstest.Node) []string {
	t.Helper()
	list, err := n.Netlink().Addrs(0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, a := range list {
		all = append(all, a.Prefix.String())
	}
	return all
}

// TestAgentDies: killing the agent during a download changes nothing for traffic, and the next one
// takes over.
func TestAgentDies(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 80, 81)
	args := []string{"--config", p.file("fin.toml", closedStay), "--iface", "eth0", "--rules",
		webRules(t)}
	p.start(args...)
	// A download of 64 MiB at 8 MiB/s takes eight seconds; the agent dies in its first.
	download := p.client.Command("curl", "-sS", "-m", fmt.Sprint(testTimeout.Seconds()), "-o",
		"/dev/null", "-w", "%{size_download}", "http://10.66.0.1/slow")
	var size strings.Builder
	download.Stdout = &size
	done := background(t, download)
	counted := func() uint64 {
		var shown api.Rules
		p.json(&shown, "fw", "show", "101")
		return shown.Rules[0].Packets
	}
	eventually(t, "the download is under way", func() error {
		if n := counted(); n < 100 {
			return fmt.Errorf("rule 101 counts %d packets", n)
		}
		return nil
	})
	p.kill()

	reach(t, p.client, "http://10.66.0.1/")
	reach(t, p.client, "http://[fd66::1]/")
	refuse(t, p.client, "http://10.66.0.1:81/")
	if _, stderr, err := p.try("fw", "show"); err == nil ||
		!strings.Contains(stderr, "no node is running") {
		t.Errorf("fw show without an agent: %v %s", err, stderr)
	}

	p.start(args...)
	var status api.Status
	p.json(&status, "status")
	if !status.TakenOver || status.States == 0 || status.Adopted != 0 {
		t.Errorf("after the takeover: %+v", status)
	}
	if n := counted(); n < 100 {
		t.Errorf("rule 101 counts %d packets after the takeover, and had more before", n)
	}
	reach(t, p.client, "http://10.66.0.1/")
	refuse(t, p.client, "http://10.66.0.1:81/")
	if err := <-done; err != nil || size.String() != fmt.Sprint(64<<20) {
		t.Errorf("the download ended with %v after %s bytes", err, size.String())
	}
}

// TestStopKeepsDownRemoves: a clean stop leaves enforcement in place, down leaves nothing at all.
func TestStopKeepsDownRemoves(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 80, 81)
	before := traces(t, p)
	p.start("--iface", "eth0", "--rules", webRules(t))
	if during := traces(t, p); during == before {
		t.Fatal("a running node leaves no trace that this test could see")
	}
	p.stop()
	refuse(t, p.client, "http://10.66.0.1:81/")
	reach(t, p.client, "http://10.66.0.1/")

	p.weir("down") // without an agent
	reach(t, p.client, "http://10.66.0.1:81/")
	if after := traces(t, p); after != before {
		t.Errorf("down without an agent leaves something:\n%s\nbefore:\n%s", after, before)
	}

	p.start("--iface", "eth0", "--rules", webRules(t))
	p.weir("down") // with one
	if err := p.wait(); err != nil {
		t.Errorf("the agent after down: %v\n%s", err, p.stderr)
	}
	reach(t, p.client, "http://10.66.0.1:81/")
	if after := traces(t, p); after != before {
		t.Errorf("down leaves something:\n%s\nbefore:\n%s", after, before)
	}
	p.weir("down") // once more is not an error
}

// traces lists everything that a node could leave behind: hooks and qdiscs of the interface, pins,
// files.
func traces(t *testing.T, p *pair) string {
	t.Helper()
	var b strings.Builder
	for _, command := range [][]string{
		{"bpftool", "net", "show", "dev", "eth0"}, {"tc", "qdisc", "show", "dev", "eth0"},
		{"ip", "-o", "link", "show"},
	} {
		// Without what is said about the machine: ip complains of a namespace that another test is
		// making or removing.
		out, err := p.server.Command(command[0], command[1:]...).Output()
		if err != nil {
			t.Fatalf("%v: %v", command, err)
		}
		b.Write(out)
	}
	for _, dir := range []string{p.root, filepath.Dir(p.bpffs)} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			fmt.Fprintln(&b, path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestTwoAgents: one root has one agent.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0")
	out, stderr, err := p.try("up", "--iface", "eth0")
	if err == nil || out != "" || !strings.Contains(stderr, "another agent uses it") {
		t.Errorf("a second agent: %v\n%s%s", err, out, stderr)
	}
	var s api.Status
	p.json(&s, "status")
	if !strings.Contains(stderr, fmt.Sprintf("process %d\n", s.PID)) {
		t.Errorf("a second agent does not name the first one, %d: %s", s.PID, stderr)
	}
	p.weir("status")
}
