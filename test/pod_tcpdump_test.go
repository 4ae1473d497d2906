package test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// echoUDP sends back what comes to port 7 of a node.
func echoUDP(t *testing.T, n *nstest.Node) {
	t.Helper()
	for _, family := range []string{"udp4", "udp6"} {
		c, err := n.ListenPacket(family, ":7")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			b := make([]byte, 2048)
			for {
				size, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				c.WriteTo(b[:size], from)
			}
		}()
	}
}

// chat sends datagrams to port 7 of an address and waits for each to come back.
func chat(n *nstest.Node, to netip.Addr, times int) error {
	c, err := n.DialContext(context.Background(), "udp", netip.AddrPortFrom(to, 7).String())
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	for range times {
		if _, err := c.Write([]byte("seen?")); err != nil {
			return err
		}
		if _, err := c.Read(make([]byte, 10)); err != nil {
			return err
		}
	}
	return nil
}

// TestLongTcpdumpInside: a capture inside a pod has every packet although the fast path leaves the
// pod's interface out on the host, and `weir pod list` counts every packet once.
func TestLongTcpdumpInside(t *testing.T) {
	t.Parallel()
	need(t, "tcpdump")
	h := newPodHost(t, "add allow ip from any to any keep-state\n")
	web, p := h.attach("web")
	client, _ := h.attach("client")
	echoUDP(t, web)
	sniffer := capture(t, web, "eth0")
	before := h.pod("web").Packets
	const times = 20
	expected := uint64(0)
	for _, from := range []*nstest.Node{h.outside, client, h.host} {
		for _, a := range p.Addrs {
			if err := chat(from, a, times); err != nil {
				t.Fatalf("from %s to %s: %v", from, a, err)
			}
			expected += times
		}
	}
	after := h.pod("web").Packets
	file := sniffer.stop()
	lines := func(filter string) uint64 {
		out, err := exec.Command("tcpdump", "-nr", file, filter).Output()
		if err != nil {
			t.Errorf("tcpdump %s: %v", filter, err)
		}
		return uint64(strings.Count(string(out), "\n"))
	}
	for direction, filter := range []string{"udp dst port 7", "udp src port 7"} {
		if seen := lines(filter); seen != expected {
			t.Errorf("%s: tcpdump inside saw %d packets of %d", filter, seen, expected)
		}
		// Neighbour discovery may come in between, and MLD: tcpdump's icmp6 does not match behind
		// the hop-by-hop options of that.
		others := lines("ip6 and not udp")
		if counted := after[direction] - before[direction]; counted < expected ||
			counted > expected+others {
			t.Errorf("%s: weir pod list counted %d packets of %d, and %d of neighbour discovery",
				filter, counted, expected, others)
		}
	}
}

// TestLongFiftyPluginsSideBySide: fifty containers that start at once, each with its own plugin
// process, all get a network, and all give it back.
func TestLongFiftyPluginsSideBySide(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q}`, h.root)
	h.cni("VERSION", "", "", config) // makes the link to the plugin
	before := h.traces()
	const n = 50
	nodes := make([]*nstest.Node, n)
	for i := range nodes {
		nodes[i] = h.lab.Node(fmt.Sprint("side", i))
	}
	all := func(command string) (results [n]map[string]any) {
		began := time.Now()
		var done sync.WaitGroup
		for i := range n {
			done.Go(func() {
				results[i], _ = h.cni(command, nodes[i].Name(), nodes[i].Path(), config)
			})
		}
		done.Wait()
		t.Logf("%d %ss side by side took %v", n, command, time.Since(began))
		return results
	}
	given := map[string]bool{}
	for i, result := range all("ADD") {
		if result["ips"] == nil {
			t.Fatalf("ADD %d: %v", i, result)
		}
		for _, ip := range result["ips"].([]any) {
			address := ip.(map[string]any)["address"].(string)
			if given[address] {
				t.Errorf("%s was given twice", address)
			}
			given[address] = true
		}
	}
	if len(given) != 2*n {
		t.Errorf("%d addresses for %d pods", len(given), n)
	}
	last := h.pod(nodes[n-1].Name())
	echoUDP(t, nodes[n-1])
	if err := chat(nodes[0], last.Addrs[0], 1); err != nil {
		t.Errorf("the first and the last: %v", err)
	}
	for i, result := range all("DEL") {
		if result != nil {
			t.Errorf("DEL %d: %v", i, result)
		}
	}
	eventually(t, "everything is gone", func() error {
		if now := h.traces(); now != before {
			return fmt.Errorf("the host had\n%s\nand has\n%s", before, now)
		}
		return nil
	})
}
