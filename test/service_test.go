package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

const serviceRules = `
add 1 check-state
add 10 allow tcp from any to table(app=web) 80 setup keep-state
add 20 deny ip from any to any
`

// virtualAddresses are those of services in these tests; the outside has a route to them.
var virtualAddresses = []string{"10.200.0.10", "fd00:200::10"}

// serviceMetric is how the names of metrics of services begin.
const serviceMetric = "weir_service_"

// podMetric is how the names of metrics of pods begin.
const podMetric = "weir_pod_"

func newServiceHost(t *testing.T, rules string) *podHost {
	t.Helper()
	h := newPodHostWith(t, podSettings+"[observe]\nmetrics = \"127.0.0.1:9642\"\n", rules)
	h.outside.Route("10.200.0.0/16", "10.66.0.1")
	h.outside.Route("fd00:200::/64", "fd66::1")
	return h
}

// serveName answers connections to port 80 of a pod with the pod's name, and then echoes. stop ends
// it.
func serveName(t *testing.T, pod *nstest.Node, name string) (stop func()) {
	t.Helper()
	l, err := pod.Listen("tcp", "[::]:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				fmt.Fprintf(c, "%-8s", name)
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return func() { l.Close() }
}

// dialName connects and returns the name of the pod that answers.
func dialName(from *nstest.Node, to string, most time.Duration) (net.Conn, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, "", err
	}
	b := make([]byte, 8)
	c.SetDeadline(time.Now().Add(most))
	if _, err := io.ReadFull(c, b); err != nil {
		c.Close()
		return nil, "", err
	}
	return c, strings.TrimSpace(string(b)), nil
}

// answering returns which pods answer some connections.
func answering(t *testing.T, from *nstest.Node, to string, connections int) map[string]int {
	t.Helper()
	n := map[string]int{}
	for range connections {
		c, name, err := dialName(from, to, testTimeout)
		if err != nil {
			t.Fatalf("from %s to %s: %v", from, to, err)
		}
		c.Close()
		n[name]++
	}
	return n
}

// says sends a word and wants it back.
func says(c net.Conn, word string, most time.Duration) error {
	c.SetDeadline(time.Now().Add(most))
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	b := make([]byte, len(word))
	_, err := io.ReadFull(c, b)
	if err == nil && string(b) != word {
		err = fmt.Errorf("it says %q", b)
	}
	return err
}

func (h *podHost) serviceList() (s api.Services) {
	h.t.Helper()
	unmarshal(h.t, h.weir("service", "list", "-j"), &s)
	return s
}

// TestService: a service of the pods of a label, of both families, is reached from the outside, the
// host and its pods. It follows the labels and the pods, and a crash of the agent loses no
// connection.
func TestService(t *testing.T) {
	t.Parallel()
	h := newServiceHost(t, serviceRules)
	var pods []*nstest.Node
	for _, name := range []string{"w1", "w2", "w3"} {
		node, _ := h.attach(name, "--label", "app=web")
		serveName(t, node, name)
		pods = append(pods, node)
	}
	for i, a := range virtualAddresses {
		out := h.weir("service", "add", fmt.Sprint("web", 4+2*i), net.JoinHostPort(a, "8080"),
			"--port", "80", "table(app=web)")
		if !strings.Contains(out, "3 pods") {
			t.Errorf("weir service add printed %q", out)
		}
	}
	four := net.JoinHostPort(virtualAddresses[0], "8080")
	for _, from := range []*nstest.Node{h.outside, h.host, pods[0]} {
		for _, a := range virtualAddresses {
			if n := answering(t, from, net.JoinHostPort(a, "8080"), 60); len(n) != 3 {
				t.Errorf("from %s to %s: %v", from, a, n)
			}
		}
	}
	var open []net.Conn
	for i := range 30 {
		c, _, err := dialName([]*nstest.Node{h.outside, h.host, pods[0]}[i%3], four, testTimeout)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	alive := func(what string) {
		t.Helper()
		for i, c := range open {
			if err := says(c, what, testTimeout); err != nil {
				t.Errorf("%s: connection %d: %v", what, i, err)
			}
		}
	}
	calls := h.calls(four)
	h.kill()
	alive("without an agent")
	calls.more(t, 10)
	answering(t, h.outside, four, 10)
	h.start("--rules", filepath.Join(h.root, "etc/weir/rules"))
	alive("with another agent")
	calls.more(t, 10)
	if err := calls.end(); err != nil {
		t.Errorf("of %d calls while agents changed, one failed: %v", calls.n.Load(), err)
	}

	h.weir("pod", "label", "w3", "app=db")
	h.follows(four, "w1", "w2")
	h.weir("pod", "label", "w3", "app=web")
	h.follows(four, "w1", "w2", "w3")
	h.weir("pod", "detach", "w1")
	h.follows(four, "w2", "w3")
	if s := h.serviceList(); s.Version == 0 || len(s.Services) != 2 ||
		len(s.Services[0].Pods) != 2 || s.Services[0].Pods[0].Accepted == 0 {
		t.Errorf("weir service list -j: %+v", s)
	}
	if out := h.weir("service", "list"); !strings.Contains(out, "w2") ||
		!strings.Contains(out, four+"/tcp") {
		t.Errorf("weir service list printed\n%s", out)
	}
	h.weir("pod", "detach", "w2")
	h.weir("pod", "detach", "w3")
	if _, _, err := dialName(h.outside, four, 300*time.Millisecond); err == nil {
		t.Error("a service without pods answers")
	}
	h.withoutTraces()
}

// calls are calls of a service, one after the other until the end.
type calls struct {
	n     atomic.Int64
	stop  chan struct{}
	ended chan error // of one that failed
}

// calls begins to call a service.
func (h *podHost) calls(to string) *calls {
	k := &calls{stop: make(chan struct{}), ended: make(chan error, 1)}
	go func() {
		for {
			select {
			case <-k.stop:
				k.ended <- nil
				return
			default:
			}
			c, _, err := dialName(h.outside, to, testTimeout)
			if err != nil {
				k.ended <- err
				return
			}
			c.Close()
			k.n.Add(1)
		}
	}()
	return k
}

// more waits for so many more calls, or for one that fails.
func (k *calls) more(t *testing.T, n int64) {
	t.Helper()
	from := k.n.Load()
	eventually(t, "a service is called", func() error {
		if now := k.n.Load(); now < from+n && len(k.ended) == 0 {
			return fmt.Errorf("%d times", now-from)
		}
		return nil
	})
}

// end ends the calls and returns the error of one that failed.
func (k *calls) end() error {
	close(k.stop)
	return <-k.ended
}

// follows waits until exactly some pods answer.
func (h *podHost) follows(to string, names ...string) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("%v answer", names), func() error {
		n := map[string]int{}
		for range 40 {
			c, name, err := dialName(h.outside, to, 3*time.Second)
			if err != nil {
				return err
			}
			c.Close()
			n[name]++
		}
		for _, name := range names {
			if n[name] == 0 || len(n) != len(names) {
				return fmt.Errorf("%v", n)
			}
		}
		return nil
	})
}

// loopbackAddresses returns those of services that the loopback has.
func (h *podHost) loopbackAddresses() (all []string) {
	h.t.Helper()
	have, err := h.host.Netlink().Addrs(1)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, a := range have {
		for _, v := range virtualAddresses {
			if a.Prefix.Addr() == netip.MustParseAddr(v) {
				all = append(all, v)
			}
		}
	}
	return all
}

// withoutTraces removes one service, and the other one by `weir down`: nothing is left of either.
func (h *podHost) withoutTraces() {
	t := h.t
	t.Helper()
	h.weir("service", "remove", "web4")
	if left := h.loopbackAddresses(); len(left) != 1 {
		t.Errorf("after one of two was removed the loopback has %v", left)
	}
	h.kill()
	h.weir("down", "--keep")
	if left := h.loopbackAddresses(); len(left) != 0 {
		t.Errorf("after weir down the loopback has %v", left)
	}
	h.start("--rules", filepath.Join(h.root, "etc/weir/rules"))
	if s := h.serviceList(); len(s.Services) != 1 || len(h.loopbackAddresses()) != 1 {
		t.Errorf("after weir down --keep: %+v", s)
	}
	h.weir("down")
	h.wait()
	record := filepath.Join(h.root, "var/lib/weir/services.json")
	if _, err := os.Stat(record); err == nil || len(h.loopbackAddresses()) != 0 {
		t.Errorf("after weir down: the record %v, addresses %v", err, h.loopbackAddresses())
	}
}

// TestServicesRefused: what cannot be a service is refused with what to do, and leaves nothing.
func TestServicesRefused(t *testing.T) {
	t.Parallel()
	h := newServiceHost(t, serviceRules)
	h.weir("service", "add", "web", "10.200.0.10:80", "app=web")
	h.weir("service", "add", "web", "10.200.0.10:80", "app=web") // again
	for words, want := range map[string]string{
		"add web 10.200.0.10:81 app=web":       "there is a service web already",
		"add other 10.200.0.10:80 app=web":     "is that of service web",
		"add own 10.66.0.1:80 app=web":         "an address of this host",
		"add gateway 10.88.0.1:80 app=web":     "is in pods.ranges",
		"add pod [fd00:88::7]:80 app=web":      "is in pods.ranges",
		"add any 0.0.0.0:80 app=web":           "not an address that others can send to",
		"add loop 127.0.0.1:80 app=web":        "not an address that others can send to",
		"add group 224.0.0.1:80 app=web":       "not an address that others can send to",
		"add link [fe80::1]:80 app=web":        "not an address that others can send to",
		"add mapped [::ffff:10.2.0.1]:80 a=b":  "not an address and a port",
		"add zero 10.200.0.11:0 app=web":       "not an address and a port",
		"add none 10.200.0.11 app=web":         "write 10.200.0.10:80",
		"add sctp 10.200.0.11:80/sctp app=web": "tcp and udp have",
		"add table 10.200.0.11:80 table(bad)":  "write table(KEY=VALUE)",
		"add a/b 10.200.0.11:80 app=web":       "a name has letters",
		"remove none":                          "weir service list",
	} {
		_, refused, err := h.try(append([]string{"service"}, strings.Fields(words)...)...)
		if err == nil || !strings.Contains(refused, want) {
			t.Errorf("weir service %s: %v, %s", words, err, refused)
		}
	}
	if s := h.serviceList(); len(s.Services) != 1 || len(h.loopbackAddresses()) != 1 {
		t.Errorf("after refusals: %+v, %v", s, h.loopbackAddresses())
	}
	_, refused, err := h.try("peer", "add", "b", "--key", strings.Repeat("B", 43)+"=", "--pods",
		"10.200.0.0/24")
	if err == nil || !strings.Contains(refused, "the address of service web") {
		t.Errorf("a peer with the address of a service: %v, %s", err, refused)
	}
	h.peersAreNoServices(t)
	_, _ = h.attach("p", "--publish", "10.200.0.10:90:80")
	_, refused, err = h.try("service", "add", "taken", "10.200.0.10:90", "app=web")
	if err == nil || !strings.Contains(refused, "published for a pod") {
		t.Errorf("a port that is published: %v, %s", err, refused)
	}
	if s := h.serviceList(); len(s.Services) != 1 {
		t.Errorf("after that: %+v", s)
	}
	h.kill()
	record := filepath.Join(h.root, "var/lib/weir/services.json")
	if err := os.WriteFile(record, []byte(`{"addresses": ["10.200.0.10"`), 0o600); err != nil {
		t.Fatal(err)
	}
	h.start("--rules", filepath.Join(h.root, "etc/weir/rules"))
	h.problem(t, "is not a record of services")
	h.weir("down")
	h.wait()
	if left := h.loopbackAddresses(); len(left) != 0 {
		t.Errorf("after weir down with a damaged record the loopback has %v", left)
	}
}

// TestServicePassesDeadPodOver: clients of a service meet a pod whose server has ended a few times,
// and again when the server is back.
func TestServicePassesDeadPodOver(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	h := newServiceHost(t, serviceRules)
	ends := map[string]func(){}
	nodes := map[string]*nstest.Node{}
	for _, name := range []string{"w1", "w2", "w3"} {
		nodes[name], _ = h.attach(name, "--label", "app=web")
		ends[name] = serveName(t, nodes[name], name)
	}
	h.weir("service", "add", "web", "10.200.0.10:80", "app=web")
	const to = "10.200.0.10:80"
	answering(t, h.outside, to, 30)
	ends["w2"]()
	state := func(name string) string {
		for _, p := range h.serviceList().Services[0].Pods {
			if p.Pod == name {
				return p.State
			}
		}
		return ""
	}
	failed := 0
	eventually(t, "w2 is passed over", func() error {
		for range 20 {
			c, _, err := dialName(h.outside, to, 2*time.Second)
			if err != nil {
				failed++
				continue
			}
			c.Close()
		}
		if s := state("w2"); s == "ok" {
			return fmt.Errorf("w2 is %s after %d failures", s, failed)
		}
		return nil
	})
	h.metricsOf(serviceMetric)
	h.metricsOf(podMetric)
	if failed == 0 {
		t.Error("a pod without a server was passed over before it refused anything")
	}
	for _, name := range []string{"w1", "w3"} {
		if s := state(name); s != "ok" {
			t.Errorf("%s is %s", name, s)
		}
	}
	serveName(t, nodes["w2"], "w2")
	h.follows(to, "w1", "w2", "w3")
	eventually(t, "w2 is in use again", func() error {
		answering(t, h.outside, to, 20)
		if s := state("w2"); s != "ok" {
			return fmt.Errorf("w2 is %s although it answers", s)
		}
		return nil
	})
}

// peersAreNoServices: the address of a peer is not one of a service, nor the other way round: the
// host would send the tunnel's packets to itself.
func (h *podHost) peersAreNoServices(t *testing.T) {
	t.Helper()
	add := func(endpoint string) (refused string, err error) {
		_, refused, err = h.try("peer", "add", "b", "--key", strings.Repeat("B", 42)+"E=",
			"--endpoint", endpoint, "--pods", "10.201.0.0/24")
		return refused, err
	}
	if refused, err := add("10.200.0.10:51820"); err == nil ||
		!strings.Contains(refused, "the address of service web") {
		t.Errorf("a peer at the address of a service: %v, %s", err, refused)
	}
	if refused, err := add("10.66.0.2:51820"); err != nil {
		t.Errorf("a peer at another address: %v, %s", err, refused)
	}
	_, refused, err := h.try("service", "add", "tunnel", "10.66.0.2:80", "app=web")
	if err == nil || !strings.Contains(refused, "the endpoint of peer b") {
		t.Errorf("a service at the address of a peer: %v, %s", err, refused)
	}
	h.weir("peer", "remove", "--release", "b")
}
