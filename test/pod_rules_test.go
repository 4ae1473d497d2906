package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/pod"
)

// sender sends datagrams from inside a namespace to the pods' gateway, one after another, until the
// test ends. They come from the address that the kernel chooses and from one that no pod has. It
// counts those of each that the kernel has taken.
func sender(t *testing.T, node *nstest.Node, stop chan struct{},
	all *sync.WaitGroup) (sent [2]*atomic.Int64) {
	t.Helper()
	for _, command := range []string{"link set lo up", "addr add 203.0.113.9/32 dev lo"} {
		node.IP(command)
	}
	for i, from := range []string{"0.0.0.0:0", "203.0.113.9:0"} {
		c, err := node.ListenPacket("udp4", from)
		if err != nil {
			t.Fatal(err)
		}
		n := new(atomic.Int64)
		sent[i] = n
		all.Go(func() {
			defer c.Close()
			to := &net.UDPAddr{IP: net.IPv4(10, 88, 0, 1), Port: 9}
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := c.WriteTo([]byte("x"), to); err != nil {
						time.Sleep(20 * time.Microsecond) // no route yet
						continue
					}
					n.Add(1)
				}
			}
		})
	}
	return sent
}

// TestNothingLeavesBeforeTheRules: what a process in a namespace sends while the namespace becomes
// a pod meets the rules from the first packet on, and so does its source.
func TestNothingLeavesBeforeTheRules(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	for _, c := range []struct {
		rules  string
		passes bool // what comes from the pod's own address
	}{{"add deny ip from any to any\n", false}, {"add allow ip from any to any\n", true}} {
		h := newPodHost(t, c.rules)
		g := newGateway(t, h.host)
		for i := range 6 {
			name := fmt.Sprint("c", i)
			node := h.lab.Node(name)
			stop, all := make(chan struct{}), sync.WaitGroup{}
			sent := sender(t, node, stop, &all)
			h.weir("pod", "attach", "--name", name, node.Path())
			before, came := [2]int64{sent[0].Load(), sent[1].Load()}, g.own.Load()
			eventually(t, "datagrams are sent and come", func() error {
				own, forged := sent[0].Load()-before[0], sent[1].Load()-before[1]
				if own < 20 || forged < 20 || c.passes && g.own.Load() == came {
					return fmt.Errorf("%d and %d are sent, %d came", own, forged,
						g.own.Load()-came)
				}
				return nil
			})
			h.weir("pod", "detach", name) // nor does anything while it goes
			close(stop)
			all.Wait()
		}
		g.drain(t, h.host)
		if g.forged.Load() != 0 || !c.passes && g.own.Load() > 0 {
			t.Errorf("%s: %d datagrams from the pods' own addresses and %d from a forged one "+
				"reached the host", c.rules, g.own.Load(), g.forged.Load())
		}
		h.stop()
	}
}

// gateway counts what comes to port 9 of a host by its sources.
type gateway struct {
	own, forged, local atomic.Int64
}

func newGateway(t *testing.T, host *nstest.Node) *gateway {
	t.Helper()
	l, err := host.ListenPacket("udp4", "0.0.0.0:9")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	g := &gateway{}
	go func() {
		b := make([]byte, 16)
		for {
			_, from, err := l.ReadFrom(b)
			if err != nil {
				return
			}
			switch a := from.(*net.UDPAddr).AddrPort().Addr().Unmap(); {
			case a.IsLoopback():
				g.local.Add(1)
			case a == netip.MustParseAddr("203.0.113.9"):
				g.forged.Add(1)
			default:
				g.own.Add(1)
			}
		}
	}()
	return g
}

// drain waits until all that has come is counted.
func (g *gateway) drain(t *testing.T, host *nstest.Node) {
	t.Helper()
	eventually(t, "what the host sends itself comes behind it", func() error {
		datagram(t, host, "127.0.0.1:9")
		if g.local.Load() == 0 {
			return errors.New("it does not come")
		}
		return nil
	})
}

// processNamespace makes a namespace that lives as long as a process in it.
func processNamespace(t *testing.T) (pid string, end func()) {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait() })
	t.Cleanup(end)
	pid = strconv.Itoa(cmd.Process.Pid)
	eventually(t, "the process is in its namespace", func() error {
		out, err := exec.Command("cat", "/proc/"+pid+"/comm").Output()
		if err == nil && strings.TrimSpace(string(out)) != "sleep" {
			err = fmt.Errorf("it is still %s", out)
		}
		return err
	})
	return pid, end
}

// clientRules let only the label role=client reach the web server.
const clientRules = `
add check-state
add allow tcp from table(role=client) to table(app=web) 80 setup keep-state
`

// labelHost is a host with a web server that only the label role=client reaches, and an address
// that pods of the name client have one after another.
type labelHost struct {
	*podHost
	url       string
	outsiders int
}

const reusedAddress = "10.88.0.77"

func (h *labelHost) attachClient(netns string) {
	h.t.Helper()
	h.weir("pod", "attach", "--name", "client", "--label", "role=client", "--addr", reusedAddress,
		"--publish", "8080:80", netns)
}

// clientGone waits until the dead client is not in the list, and wants a healthy node.
func (h *labelHost) clientGone() {
	h.t.Helper()
	eventually(h.t, "the dead pod is gone", func() error {
		for _, p := range h.pods() {
			if p.Name == "client" {
				return fmt.Errorf("%+v", p)
			}
		}
		return nil
	})
	var s api.Status
	h.json(&s, "status", "-j")
	if !s.Healthy {
		h.t.Errorf("status: %+v", s.Problems)
	}
}

// outsider gives the client's name, address and published port to a pod without labels: it has
// none, and reaches nothing.
func (h *labelHost) outsider(after string) {
	h.t.Helper()
	h.outsiders++
	node := h.lab.Node(fmt.Sprint("outsider", h.outsiders))
	// A dead pod leaves the list first. Its address is free when nothing is left of it, the labels
	// least of all.
	eventually(h.t, "the address is free", func() error {
		_, _, err := h.try("pod", "attach", "--name", "client", "--addr", reusedAddress,
			"--publish", "8080:80", node.Path())
		return err
	})
	if got := h.members("role=client"); strings.Contains(got, "77/") {
		h.t.Errorf("%s: the table has\n%s", after, got)
	}
	refuse(h.t, node, h.url)
	h.weir("pod", "detach", "client")
}

// TestLabelsGoWithTheirPod: who gets an address after another pod never gets its labels, however
// that one ended.
func TestLabelsGoWithTheirPod(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	h := &labelHost{podHost: newPodHost(t, clientRules)}
	web, webPod := h.attach("web", "--label", "app=web")
	nginx(t, web, 80)
	h.url = pageAt(webPod.Addrs[0], 80)

	twice := h.lab.Node("twice")
	h.attachClient(twice.Path())
	h.attachClient(twice.Path())
	reach(t, twice, h.url)
	h.weir("pod", "detach", "client")
	h.outsider("attached twice, detached once")

	pid, end := processNamespace(t)
	h.attachClient("pid:" + pid)
	end()
	h.clientGone()
	h.outsider("its namespace died")

	deleted := h.lab.Node("deleted")
	h.attachClient(deleted.Path())
	if err := h.host.Netlink().DeleteLink(int(h.pod("client").Index)); err != nil {
		t.Fatal(err)
	}
	h.clientGone()
	h.outsider("its interface was deleted")

	pid, end = processNamespace(t)
	h.attachClient("pid:" + pid)
	h.kill()
	end()
	h.start()
	h.clientGone()
	h.outsider("its namespace died while no agent ran")
	late, _ := h.attach("late", "--label", "role=client")
	reach(t, late, h.url)
}

// TestNodesOwnNamespace: the node does not make itself a pod, whatever name its namespace is given
// by.
func TestNodesOwnNamespace(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	for _, ranges := range []string{`"10.88.0.0/24"`, `"10.88.0.0/24", "fd00:88::/120"`} {
		h := newPodHostWith(t, "[pods]\nranges = ["+ranges+"]\n", "add allow ip from any to any\n")
		h.host.Route("0.0.0.0/0", "10.66.0.2")
		before := h.traces()
		config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q}`,
			h.root)
		if out, _ := h.cni("ADD", "one", h.host.Path(),
			config); !strings.Contains(fmt.Sprint(out["msg"]), "the node's own network namespace") {
			t.Errorf("ADD: %v", out)
		}
		for _, netns := range []string{h.host.Name(), h.host.Path(), "pid:" +
			strconv.Itoa(h.agent.Process.Pid)} {
			_, stderr, err := h.try("pod", "attach", netns)
			if err == nil || !strings.Contains(stderr, "the node's own network namespace") ||
				!strings.Contains(stderr, "ip netns list") {
				t.Errorf("pod attach %s: %v, %s", netns, err, stderr)
			}
		}
		if now := h.traces(); now != before {
			t.Errorf("the host had\n%s\nand has\n%s", before, now)
		}
		h.stop()
	}
}

// TestClientDisconnects: a client that repeats an attach and does not wait for the answer takes
// nothing away.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	node, p := h.attach("one")
	body, err := json.Marshal(pod.Spec{Container: p.Container, Name: "one", Netns: node.Path()})
	if err != nil {
		t.Fatal(err)
	}
	// The agent finds the whole request, and its end, when it continues.
	for range 20 {
		h.agent.Process.Signal(syscall.SIGSTOP)
		c, err := net.Dial("unix", filepath.Join(h.root, "run/weir/weir.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "POST /v1/pods HTTP/1.1\r\nHost: localhost\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body),
			body); err != nil {
			t.Fatal(err)
		}
		c.Close()
		h.agent.Process.Signal(syscall.SIGCONT)
		h.weir("status")
		if now := h.pod("one"); now.Index != p.Index || now.Addrs[0] != p.Addrs[0] {
			t.Fatalf("the pod was %+v and is %+v", p, now)
		}
	}
}

// TestContainersThatStopTogether: containers whose namespaces die while they are detached leave no
// name, port or address behind.
func TestContainersThatStopTogether(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	config := func(i int) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q,"runtimeConfig":{"portMappings":[{"hostPort":%d,"containerPort":80,"protocol":"tcp"}]}}`,
			h.root, 9000+i)
	}
	h.cni("STATUS", "", "", strings.Replace(config(0), "1.0.0", "1.1.0", 1))
	before := h.traces()
	const n = 24
	for round := range 2 {
		var all sync.WaitGroup
		ends := make([]func(), n)
		for i := range n {
			pid, end := processNamespace(t)
			ends[i] = end
			all.Go(func() {
				if out, _ := h.cni("ADD", fmt.Sprint("c", round, "-", i), "/proc/"+pid+"/ns/net",
					config(i)); out["ips"] == nil {
					t.Errorf("round %d: ADD: %v", round, out)
				}
			})
		}
		all.Wait()
		for i := range n {
			all.Go(func() {
				if out, _ := h.cni("DEL", fmt.Sprint("c", round, "-", i), "",
					config(i)); out != nil {
					t.Errorf("round %d: DEL: %v", round, out)
				}
			})
			all.Go(ends[i])
		}
		all.Wait()
	}
	eventually(t, "nothing is left", func() error {
		if now := h.traces(); now != before {
			return fmt.Errorf("the host had\n%s\nand has\n%s", before, now)
		}
		return nil
	})
	var s api.Status
	h.json(&s, "status", "-j")
	if !s.Healthy || strings.Contains(h.stderr.String(), "cannot remove pods") ||
		strings.Contains(h.stderr.String(), "no such device") {
		t.Errorf("status %+v; the agent printed\n%s", s.Problems, h.stderr)
	}
}

// TestLongestName: a pod may have the longest name that Kubernetes can make of a namespace and a
// pod; rules name it by its beginning.
func TestLongestName(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	long := strings.Repeat("n", 63) + "." + strings.Repeat("p", 253)
	h := newPodHost(t, "add allow icmp from any to any via pod:nnnnnnnn* keep-state\n")
	node := h.lab.Node("long")
	h.weir("pod", "attach", "--name", long, node.Path())
	if out, err := node.Command("ping", "-c1", "-W300", "10.88.0.1").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	other, _ := h.attach("other")
	if out, err := other.Command("ping", "-c1", "-W1", "10.88.0.1").CombinedOutput(); err == nil {
		t.Errorf("another pod passes the rule of that name: %s", out)
	}
}

// TestNoCommandChangesALabel: the table of a label has the pods with that label, whatever the
// commands and the rule files say.
func TestNoCommandChangesALabel(t *testing.T) {
	t.Parallel()
	h := newPodHost(t, clientRules)
	_, client := h.attach("client", "--label", "role=client")
	before := h.members("role=client")
	if !strings.Contains(before, client.Addrs[0].String()) {
		t.Fatalf("the pod is not in the table of its label:\n%s", before)
	}
	declared := h.file("declared", "table role=client create\n"+clientRules)
	for _, args := range [][]string{
		{"fw", "table", "role=client", "add", "10.88.0.99"},
		{"fw", "table", "role=client", "delete", client.Addrs[0].String()},
		{"fw", "table", "role=client", "flush"}, {"fw", "table", "role=client", "destroy"},
		{"fw", "load", declared},
	} {
		if _, stderr, err := h.try(args...); err == nil ||
			!strings.Contains(stderr, "is the table of a label") {
			t.Errorf("%v: %v %s", args, err, stderr)
		}
		if now := h.members("role=client"); now != before {
			t.Errorf("after %v the table has\n%s", args, now)
		}
	}
}
