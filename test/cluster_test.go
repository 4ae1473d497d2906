package test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
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
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/weir-store")
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

func newCluster(t *testing.T) *cluster {
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
	k.a.weir("cluster", "init", "--name", "a", "--address", storeAddress, "--pool",
		"10.64.0.0/16:24")
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

// joinWithoutTunnel is join of a host whose port of the tunnel another program has: until that
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
	out, stderr, err := k.a.try(append(append([]string{"fw", "load"}, args...), file)...)
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

// TestCluster: three hosts join with one command each; pods of one are in the tables of the others;
// one load is in force everywhere; a version that would cut a host off is refused, and one that is
// not confirmed goes back; without the store, everything stays as it is, also after a start; a
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
	web, webPod := k.b.attach("web", "--label", "app=web", "--label", "role=db")
	nginx(t, web, 80)
	client, _ := k.c.attach("client", "--label", "app=client")
	outsider, _ := k.c.attach("outsider")
	address := webPod.Addrs[0]
	members := func(h *podHost, table string) string { // there may be none
		out, _, _ := h.try("fw", "table", table, "list")
		return out
	}
	k.eventually("the pod of b is in the tables of a and c", func() error {
		for _, h := range []*podHost{k.a, k.c} {
			if got := members(h, "app=web"); !strings.Contains(got, address.String()) {
				return fmt.Errorf("app=web: %q", got)
			}
		}
		return nil
	})
	if got, _, err := k.c.try("fw", "table", "role=db", "list"); err == nil {
		t.Errorf("a label that b may not give: %q", got)
	}
	k.eventually("the client is in the table of b", func() error {
		if got := members(k.b, "app=client"); got == "" {
			return fmt.Errorf("app=client is empty")
		}
		return nil
	})
	reach(t, client, pageAt(address, 80))
	refuse(t, outsider, pageAt(address, 80))
	relabel := func(change, now string, there bool) {
		t.Helper()
		k.c.weir("pod", "label", "client", change)
		k.eventually("the labels of the client change on b", func() error {
			if got := members(k.b, "app=client"); got != "" != there {
				return fmt.Errorf("%s: app=client: %q", now, got)
			}
			return nil
		})
	}
	relabel("app=guest", "a guest", false)
	refuse(t, client, pageAt(address, 80))
	relabel("app=client", "a client", true)
	reach(t, client, pageAt(address, 80))

	if out, err := k.load("add 5 deny tcp from any to any 7477\n" + clusterRules); err == nil ||
		!strings.Contains(err.Error(), "refused on b: rule 5 ") ||
		!strings.Contains(err.Error(), "would cut this host off from "+storeAddress) {
		t.Errorf("rules that cut hosts off: %s, %v", out, err)
	}
	if _, err := k.load(clusterRules); err != nil {
		t.Error(err)
	}
	if out, err := k.load("add 20 deny ip from any to table(app=web)\n"+clusterRules, "--confirm",
		"10s"); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	refuse(t, client, pageAt(address, 80))
	k.eventually("the version before is back", func() error {
		_, err := curl(client, pageAt(address, 80))
		return err
	})
	if _, _, err := k.c.try("fw", "add", "7", "allow", "ip", "from", "any", "to",
		"any"); err == nil {
		t.Error("the rules of one host are changed")
	}
	k.a.weir("fw", "table", "bad", "add", "192.0.2.0/24", "7")
	k.eventually("a shared table", func() error {
		if got := members(k.c, "bad"); !strings.Contains(got, "192.0.2.0/24 7") {
			return fmt.Errorf("bad: %q", got)
		}
		return nil
	})

	k.stopStore()
	k.c.stop()
	began := time.Now()
	k.c.start()
	t.Logf("a start without the store takes %v", time.Since(began).Round(time.Millisecond))
	reach(t, client, pageAt(address, 80))
	refuse(t, outsider, pageAt(address, 80))
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

	k.c.clusterMetrics()
	if list := k.a.weir("node", "list"); strings.Count(list, "10.64.") != 3 {
		t.Errorf("hosts:\n%s", list)
	}
	k.a.weir("node", "remove", "b")
	k.eventually("b is gone from c", func() error {
		if got := members(k.c, "app=web"); got != "" {
			return fmt.Errorf("app=web: %q", got)
		}
		for _, p := range k.c.peers().Peers {
			if p.Name == "host:b" {
				return fmt.Errorf("b is a peer")
			}
		}
		return nil
	})
	refuse(t, client, pageAt(address, 80))
}

// clusterMetrics checks that a host of a cluster serves what docs/metrics.md lists for one.
func (h *podHost) clusterMetrics() {
	h.t.Helper()
	text, err := h.host.Command("curl", "-sS", "http://127.0.0.1:9642/metrics").Output()
	if err != nil {
		h.t.Fatal(err)
	}
	var lines strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, clusterMetric) {
			lines.WriteString(line)
		}
	}
	want := documented(h.t, "metrics.md")
	maps.DeleteFunc(want, func(name string, _ [2]string) bool {
		return !strings.HasPrefix(name, clusterMetric)
	})
	checkMetrics(h.t, lines.String(), want)
}

// clusterMetric is how the names of metrics of a cluster begin.
const clusterMetric = "weir_store_"
