package test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// storeProgram builds weir-store beside weir, where weir looks for it.
var storeProgram = sync.OnceValues(func() (string, error) {
	program := filepath.Join(filepath.Dir(weir), "weir-store")
	build := exec.Command("go", "build", "-o", program, "./cmd/weir-store")
	build.Dir = "../store/etcd"
	build.Env = append(os.Environ(), "GOWORK=off")
	out, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build weir-store: %w\n%s", err, out)
	}
	return program, err
})

// cluster is three hosts in a triangle; the store is on a.
//
//	a ---- 10.66.1.0/24 ---- b
//	 \                      /
//	  10.66.2.0/24   10.66.3.0/24
//	             \  /
//	              c
type cluster struct {
	t       *testing.T
	a, b, c *podHost
	store   *nstest.Cmd
	printed *programOutput // by the store
}

const storeAddress = "10.66.1.1:7477"

// newCluster makes it with more words for init.
func newCluster(t *testing.T, init ...string) *cluster {
	t.Helper()
	program, err := storeProgram()
	if err != nil {
		t.Fatal(err)
	}
	lab := nstest.New(t)
	k := &cluster{t: t}
	for name, h := range map[string]**podHost{"a": &k.a, "b": &k.b, "c": &k.c} {
		*h = &podHost{lab: lab, host: lab.Node(name)}
		(*h).agentNode = newAgentNode(t, (*h).host)
		(*h).file("etc/weir/weir.toml", "[overlay]\n[observe]\nmetrics = \"127.0.0.1:9642\"\n")
		(*h).file("etc/weir/rules", "add 1 allow ip from any to any\n")
	}
	lab.Join(k.a.host, "eth0", "10.66.1.1/24", k.b.host, "eth0", "10.66.1.2/24")
	lab.Join(k.a.host, "eth1", "10.66.2.1/24", k.c.host, "eth0", "10.66.2.2/24")
	lab.Join(k.b.host, "eth1", "10.66.3.1/24", k.c.host, "eth1", "10.66.3.2/24")
	route := func(h *podHost, to, via string) {
		if err := h.host.AddRoute(netip.MustParsePrefix(to), netip.MustParseAddr(via)); err != nil {
			t.Fatal(err)
		}
	}
	route(k.c, "10.66.1.0/24", "10.66.2.1")
	route(k.b, "10.66.2.0/24", "10.66.1.1")
	k.a.weir(append([]string{"cluster", "init", "--name", "a", "--address", storeAddress, "--pool",
		"10.64.0.0/16:24"}, init...)...)
	k.startStore(program)
	t.Cleanup(k.stopStore)
	return k
}

// join starts a node and makes its host one of the cluster.
func (k *cluster) join(name string, h *podHost) {
	k.t.Helper()
	h.start()
	token := strings.TrimSpace(k.a.weir("cluster", "invite", "--role", "host-"+name, "--label",
		"app"))
	h.weir("join", "--name", name, token)
	k.eventually(name+" follows", func() error {
		s := h.status()
		if s.Cluster == nil || !s.Cluster.Connected || !s.Pods {
			return fmt.Errorf("status: %+v", s.Cluster)
		}
		return nil
	})
}

// joinWithoutTunnel is join of a host whose port of the tunnel another program has. Until that
// ends, the ranges of the others are unreachable, so that nothing leaves in the clear.
func (k *cluster) joinWithoutTunnel(name string, h *podHost) {
	k.t.Helper()
	taken, err := h.host.ListenPacket("udp", ":51820")
	if err != nil {
		k.t.Fatal(err)
	}
	defer taken.Close()
	k.join(name, h)
	k.eventually("the ranges of the others are closed", func() error {
		out, err := h.host.Command("ip", "route").Output()
		if strings.Count(string(out), "unreachable 10.64.") != 2 ||
			strings.Contains(string(out), "dev weir0") {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})
}

func (k *cluster) eventually(what string, try func() error) {
	k.t.Helper()
	eventually(k.t, what, try)
}

// startStore runs weir-store and waits until it answers.
func (k *cluster) startStore(program string) {
	k.t.Helper()
	k.store = k.a.host.Command(program, "serve", "--dir",
		filepath.Join(k.a.root, "var/lib/weir-store"))
	k.printed = new(programOutput)
	k.store.Stdout, k.store.Stderr = k.printed, k.printed
	if err := k.store.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.eventually("weir-store answers", func() error {
		conn, err := k.a.host.DialContext(k.t.Context(), "tcp", storeAddress)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// stopStore ends weir-store as a crash would.
func (k *cluster) stopStore() {
	if k.store != nil {
		_ = k.store.Process.Kill()
		_ = k.store.Wait()
		k.store = nil
	}
}

// status returns the status, or nothing while the node begins again.
func (h *podHost) status() (s api.Status) {
	h.t.Helper()
	if out, _, err := h.try("status", "-j"); out != "" {
		unmarshal(h.t, out, &s)
	} else if err == nil {
		h.t.Error("the status is empty")
	}
	return s
}

// load loads rules from host a.
func (k *cluster) load(text string, args ...string) (stdout string, err error) {
	file := k.a.file("cluster.rules", text)
	return k.enforce(append(append([]string{"fw", "load"}, args...), file)...)
}

// silentHosts is what a command prints if hosts report later than it waits.
var silentHosts = regexp.MustCompile(
	`^version (\S+) enforced on \d+ of (\d+) hosts.*\nsilent: .*\n$`)

// enforce gives a command on host a after which all hosts enforce another version. If some are so
// busy that they are silent, it waits for them, but not during a trial that may end meanwhile.
func (k *cluster) enforce(args ...string) (stdout string, err error) {
	out, stderr, err := k.a.try(args...)
	if m := silentHosts.FindStringSubmatch(out); m != nil {
		k.t.Logf("weir %v: %s", args, out)
		if slices.Contains(args, "--confirm") && !slices.Contains(args, "1h") {
			return out, nil
		}
		for _, h := range []*podHost{k.a, k.b, k.c} {
			k.eventually("a silent host enforces the version", func() error {
				s := h.status()
				if h.agent != nil && (s.Cluster == nil || s.Cluster.Version != m[1]) {
					return fmt.Errorf("%+v", s.Cluster)
				}
				return nil
			})
		}
		return fmt.Sprintf("version %s enforced on %s of %[2]s hosts\n", m[1], m[2]), nil
	}
	if err != nil {
		err = fmt.Errorf("%w: %s%s", err, out, stderr)
	}
	return out, err
}

// clusterRules let the store and the tunnel work, and clients into web servers.
const clusterRules = `
add 10 check-state
add 100 allow tcp from any to any 7477 keep-state
add 110 allow udp from any to any 51820
add 200 allow tcp from table(app=client) to table(app=web) 80 keep-state
`

// clusterPods are a web server on b, and on c a client whose label lets it in, and one without.
type clusterPods struct {
	client, outsider *nstest.Node
	address, url     string // of the web server
}

func (k *cluster) startPods() *clusterPods {
	k.t.Helper()
	web, webPod := k.b.attach("web", "--label", "app=web", "--label", "role=db")
	nginx(k.t, web, 80)
	p := &clusterPods{address: webPod.Addrs[0].String(), url: pageAt(webPod.Addrs[0], 80)}
	p.client, _ = k.c.attach("client", "--label", "app=client")
	p.outsider, _ = k.c.attach("outsider")
	return p
}

// listed returns the members of a table, which may not be there.
func (h *podHost) listed(table string) string {
	out, _, _ := h.try("fw", "table", table, "list")
	return out
}

// follows waits until a host's table has a text, or until it has nothing.
func (k *cluster) follows(h *podHost, what, table, text string) {
	k.t.Helper()
	k.eventually(what, func() error {
		got := h.listed(table)
		if !strings.Contains(got, text) || text == "" && got != "" {
			return fmt.Errorf("%s: %q", table, got)
		}
		return nil
	})
}

// TestCluster: three hosts join with one command each. Pods of one are in the tables of the others,
// and one load is in force everywhere. A version that would cut a host off is refused, and one that
// is not confirmed goes back. Without the store, everything stays as it is, also after a start. A
// removed host is gone from the others.
func TestCluster(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	k := newCluster(t)
	k.join("a", k.a)
	k.join("b", k.b)
	k.joinWithoutTunnel("c", k.c)
	out, err := k.load(clusterRules)
	if err != nil || !strings.Contains(out, "enforced on 3 of 3 hosts") {
		t.Fatalf("%s, %v", out, err)
	}
	p := k.startPods()
	k.followPods(p)
	k.loadVersions(p)
	k.withoutStore(p)
	k.c.clusterMetrics()
	k.removeB(p)
}

// followPods: pods of one host, and their labels, are in the tables of the others.
func (k *cluster) followPods(p *clusterPods) {
	t := k.t
	t.Helper()
	k.follows(k.a, "the pod of b is in the table of a", "app=web", p.address)
	k.follows(k.c, "the pod of b is in the table of c", "app=web", p.address)
	if got, _, err := k.c.try("fw", "table", "role=db", "list"); err == nil {
		t.Errorf("a label that b may not give: %q", got)
	}
	k.follows(k.b, "the client is in the table of b", "app=client", "/")
	reach(t, p.client, p.url)
	refuse(t, p.outsider, p.url)
	k.c.weir("pod", "label", "client", "app=guest")
	k.follows(k.b, "the client has another label on b", "app=client", "")
	refuse(t, p.client, p.url)
	k.c.weir("pod", "label", "client", "app=client")
	k.follows(k.b, "the client has its label again on b", "app=client", "/")
	reach(t, p.client, p.url)
}

// loadVersions loads versions of the rules that a host refuses, that the administrator takes back,
// and that no host confirms, and changes a table of all.
func (k *cluster) loadVersions(p *clusterPods) {
	t := k.t
	if out, err := k.load("add 5 deny tcp from any to any 7477\n" + clusterRules); err == nil ||
		!strings.Contains(err.Error(), "refused on b: rule 5 ") ||
		!strings.Contains(err.Error(), "would cut this host off from "+storeAddress) {
		t.Errorf("rules that cut hosts off: %s, %v", out, err)
	}
	if _, err := k.load(clusterRules); err != nil {
		t.Error(err)
	}
	if out, err := k.load("add 20 deny ip from any to table(app=web)\n"+clusterRules, "--confirm",
		"1h"); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	refuse(t, p.client, p.url)
	if out, err := k.enforce("fw", "revert"); err != nil ||
		!strings.Contains(out, "enforced on 3 of 3 hosts") {
		t.Errorf("fw revert says %q, %v", out, err)
	}
	reach(t, p.client, p.url)
	if out, err := k.load("add 20 deny ip from any to table(app=web)\n"+clusterRules, "--confirm",
		"10s"); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	k.eventually("the previous version is back", func() error {
		_, err := curl(p.client, p.url)
		return err
	})
	if _, _, err := k.c.try("fw", "add", "7", "allow", "ip", "from", "any", "to",
		"any"); err == nil {
		t.Error("the rules of one host are changed")
	}
	k.a.weir("fw", "table", "bad", "add", "192.0.2.0/24", "7")
	k.follows(k.c, "a shared table", "bad", "192.0.2.0/24 7")
}

// withoutStore: c starts while there is no store, enforces what it had, and follows again.
func (k *cluster) withoutStore(p *clusterPods) {
	t := k.t
	k.stopStore()
	k.c.stop()
	began := time.Now()
	k.c.start()
	t.Logf("a start without the store takes %v", time.Since(began).Round(time.Millisecond))
	reach(t, p.client, p.url)
	refuse(t, p.outsider, p.url)
	if got := k.c.members("bad"); !strings.Contains(got, "192.0.2.0/24 7") {
		t.Errorf("the shared table after a start: %q", got)
	}
	if s := k.c.status(); s.Cluster == nil || s.Cluster.Connected ||
		!strings.Contains(s.Source, "of the cluster") {
		t.Errorf("status without the store: %+v", s)
	}
	program, err := storeProgram()
	if err != nil {
		t.Fatal(err)
	}
	k.startStore(program)
	k.eventually("c follows again", func() error {
		if s := k.c.status(); s.Cluster == nil || !s.Cluster.Connected {
			return fmt.Errorf("%+v", s.Cluster)
		}
		return nil
	})
}

// removeB: b's pods and b itself are gone from the others.
func (k *cluster) removeB(p *clusterPods) {
	t := k.t
	t.Helper()
	if list := k.a.weir("node", "list"); strings.Count(list, "10.64.") != 3 {
		t.Errorf("hosts:\n%s", list)
	}
	k.a.weir("node", "remove", "b")
	k.follows(k.c, "b's pods are gone from c", "app=web", "")
	k.eventually("b is gone from c", func() error {
		for _, p := range k.c.peers().Peers {
			if p.Name == "host:b" {
				return fmt.Errorf("b is a peer")
			}
		}
		return nil
	})
	refuse(t, p.client, p.url)
}

// clusterMetrics checks that a host of a cluster serves what docs/metrics.md lists for one.
func (h *podHost) clusterMetrics() { h.metricsOf(clusterMetric) }

// metricsOf checks that a host serves the metrics with a prefix that docs/metrics.md lists.
func (h *podHost) metricsOf(prefix string) {
	h.t.Helper()
	text, err := h.host.Command("curl", "-sS", "http://127.0.0.1:9642/metrics").Output()
	if err != nil {
		h.t.Fatal(err)
	}
	var lines strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, prefix) {
			lines.WriteString(line)
		}
	}
	want := documented(h.t, "metrics.md")
	maps.DeleteFunc(want, func(name string, _ [2]string) bool {
		return !strings.HasPrefix(name, prefix)
	})
	checkMetrics(h.t, lines.String(), want)
}

// clusterMetric is how the names of metrics of a cluster begin.
const clusterMetric = "weir_store_"
