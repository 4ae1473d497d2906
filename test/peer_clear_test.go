package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// leakHosts are two hosts of which the left one's default route leads elsewhere:
//
//	left  eth1 ------ eth0  elsewhere, which counts what comes for the right host's containers
//	                        in the clear
//	10.67.0.1            10.67.0.2
type leakHosts struct {
	*hosts
	elsewhere *nstest.Node
}

func newLeakHosts(t *testing.T, rules string) *leakHosts {
	t.Helper()
	need(t, "nft")
	h := newHosts(t, rules, rules)
	l := &leakHosts{h, h.left.lab.Node("elsewhere")}
	h.left.lab.Join(h.left.host, "eth1", "10.67.0.1/24 fd67::1/64", l.elsewhere, "eth0",
		"10.67.0.2/24 fd67::2/64")
	h.left.host.Route("0.0.0.0/0", "10.67.0.2")
	h.left.host.Route("::/0", "fd67::2")
	table := "table netdev clear { chain in { type filter hook ingress device eth0 priority 0;\n" +
		"ip daddr 10.88.2.0/23 counter drop\nip6 daddr fd00:88:2::/64 counter drop\n}; }\n"
	l.elsewhere.Run("nft", "-f", h.right.file("clear.nft", table))
	return l
}

// allowAll are rules that keep nothing in: only routes do.
const allowAll = "add allow ip from any to any\n"

var nftPackets = regexp.MustCompile(`counter packets (\d+)`)

// clear is how many packets left in the clear so far.
func (h *leakHosts) clear(t *testing.T) (n int) {
	t.Helper()
	out, err := h.elsewhere.Command("nft", "list", "table", "netdev", "clear").CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	for _, m := range nftPackets.FindAllStringSubmatch(string(out), -1) {
		one, _ := strconv.Atoi(m[1])
		n += one
	}
	return n
}

// flooding sends datagrams of both families to addresses of the right host's containers, from a
// node, until it is stopped.
type flooding struct {
	sent  atomic.Int64 // that went out, which are as many as the kernel did not refuse
	ended chan struct{}
	done  sync.WaitGroup
}

func flood(t *testing.T, from *nstest.Node) *flooding {
	t.Helper()
	f := &flooding{ended: make(chan struct{})}
	var conns []net.PacketConn
	for _, local := range []string{"0.0.0.0:0", "[::]:0"} {
		c, err := from.ListenPacket("udp", local)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	to := []net.Addr{&net.UDPAddr{IP: net.ParseIP("10.88.2.77"), Port: 9},
		&net.UDPAddr{IP: net.ParseIP("fd00:88:2::77"), Port: 9}}
	f.done.Go(func() {
		for {
			select {
			case <-f.ended:
				for _, c := range conns {
					c.Close()
				}
				return
			default:
			}
			for i, c := range conns {
				if _, err := c.WriteTo([]byte("secret"), to[i]); err == nil {
					f.sent.Add(1)
				}
			}
			time.Sleep(200 * time.Microsecond)
		}
	})
	return f
}

// more waits until so many more datagrams have gone out.
func (f *flooding) more(t *testing.T, n int64) {
	t.Helper()
	from := f.sent.Load()
	eventually(t, "datagrams go out", func() error {
		if now := f.sent.Load(); now < from+n {
			return fmt.Errorf("%d", now-from)
		}
		return nil
	})
}

func (f *flooding) stop() {
	close(f.ended)
	f.done.Wait()
}

// never fails the test if anything leaves in the clear while f runs.
func (h *leakHosts) never(t *testing.T, what string, f func()) {
	t.Helper()
	before := h.clear(t)
	f()
	if n := h.clear(t) - before; n > 0 {
		t.Errorf("%s: %d packets left in the clear", what, n)
	}
}

// problem waits until the status of a host shows a problem with some text, and returns its
// advice; "" waits until there is none.
func (h *podHost) problem(t *testing.T, says string) (advice string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the status says %q", says), func() error {
		var s api.Status
		out, _, _ := h.try("status", "-j") // fails while there are problems
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			return err
		}
		for _, p := range s.Problems {
			if says != "" && strings.Contains(p.What, says) {
				advice = p.Advice
				return nil
			}
		}
		if says == "" && s.Healthy {
			return nil
		}
		return fmt.Errorf("%+v", s.Problems)
	})
	return advice
}

// agentPID is the agent's process.
func (h *podHost) agentPID(t *testing.T) int {
	t.Helper()
	var s api.Status
	out, stderr, _ := h.try("status", "-j")
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.PID == 0 {
		t.Fatalf("%v: %s %s", err, out, stderr)
	}
	return s.PID
}

// TestNothingInTheClear: while a peer's key and ranges are changed, while it is removed, and until
// it is released, nothing that is meant for it takes the default route. A connection to a removed
// peer ends.
func TestNothingInTheClear(t *testing.T) {
	t.Parallel()
	h := newLeakHosts(t, allowAll)
	h.meet()
	client, _ := h.left.attach("client")
	_, right := h.keys()
	floods := []*flooding{flood(t, h.left.host), flood(t, client)}
	add := func(key, pods string) {
		t.Helper()
		h.left.weir("peer", "add", "right", "--key", key, "--endpoint", "10.66.0.2:51820", "--pods",
			pods)
	}
	const pods = "10.88.2.0/24,fd00:88:2::/120"
	h.never(t, "changes of the key", func() {
		for i := range 20 {
			other := strings.Repeat(string(rune('A'+i)), 20) + right[20:]
			add(other, pods)
		}
		add(right, pods)
		for _, f := range floods {
			f.more(t, 500)
		}
	})
	h.never(t, "changes of the ranges", func() {
		for range 5 {
			add(right, "10.88.2.0/25")
			add(right, pods)
			add(right, "10.88.2.0/23,fd00:88:2::/64")
		}
		add(right, pods)
		for _, f := range floods {
			f.more(t, 500)
		}
	})
	h.never(t, "a peer that is removed", func() {
		if _, stderr, err := h.left.try("peer", "remove", "right"); err != nil ||
			!strings.Contains(stderr, "weir peer remove --release right") {
			t.Errorf("weir peer remove says %q, %v", stderr, err)
		}
		time.Sleep(300 * time.Millisecond)
		h.left.stop()
		h.left.start("--rules", filepath.Join(h.left.root, "etc/weir/rules"))
		time.Sleep(300 * time.Millisecond)
	})
	if p := h.left.peers(); len(p.Peers) != 0 || len(p.Held) != 1 || p.Held[0].Name != "right" ||
		len(p.Held[0].Pods) < 2 {
		t.Errorf("after the removal weir peer list shows %+v", p)
	}
	if _, stderr, err := h.left.try("peer", "remove", "right"); err == nil ||
		!strings.Contains(stderr, "--release right") {
		t.Errorf("a second removal: %v, %s", err, stderr)
	}
	// Its ranges are another's now; they are not held any more.
	add(right, "10.88.0.0/31,10.88.2.0/23,fd00:88:2::/64")
	if p := h.left.peers(); len(p.Held) != 0 {
		t.Errorf("ranges that a peer has are held: %+v", p.Held)
	}
	h.left.weir("peer", "remove", "--release", "right")
	before := h.clear(t)
	eventually(t, "released ranges take the default route", func() error {
		if h.clear(t) == before {
			return errors.New("nothing came")
		}
		return nil
	})
	for _, f := range floods {
		f.stop()
	}
	if p := h.left.peers(); len(p.Held) != 0 {
		t.Errorf("released ranges are held: %+v", p.Held)
	}
	if out := footprint(t, h.left); strings.Contains(out, "unreachable") {
		t.Errorf("after the release the routes are\n%s", out)
	}
}

// TestRemovedPeersConnectionsEnd: both ends of a connection to a peer that is removed get an error.
func TestRemovedPeersConnectionsEnd(t *testing.T) {
	t.Parallel()
	rules := wireRules +
		"add check-state\nadd allow tcp from any to any setup keep-state\n" +
		"add allow icmp from any to any\n"
	h := newLeakHosts(t, rules)
	h.meet()
	web, webPod := h.right.attach("web")
	client, _ := h.left.attach("client")
	ln, err := web.Listen("tcp", net.JoinHostPort(webPod.Addrs[0].String(), "80"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var ends []net.Conn
	for _, from := range []*nstest.Node{client, h.left.host} {
		c, err := from.DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ends = append(ends, c, s)
	}
	h.never(t, "connections of a removed peer", func() {
		h.left.weir("peer", "remove", "--release", "right")
		for i, c := range ends {
			c.SetDeadline(time.Now().Add(testTimeout))
			if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
				t.Errorf("end %d of a connection continues: %v", i, err)
			}
		}
	})
}

// obstacle is a reason for which the left host cannot open its tunnel, what the status says about
// it, and how it comes and goes.
type obstacle struct {
	name, says, advice string
	put, remove        func()
}

// obstacles to the tunnel of the left host.
func (h *leakHosts) obstacles(t *testing.T) []obstacle {
	t.Helper()
	key := filepath.Join(h.left.root, "var/lib/weir/key")
	good, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	var port net.PacketConn
	return []obstacle{
		{"a damaged key", "no tunnel to other nodes", "",
			func() { os.WriteFile(key, good[:20], 0o600) },
			func() { os.WriteFile(key, good, 0o600) }},
		{"a taken port", "address already in use", "UDP port 51820", func() {
			var err error
			if port, err = h.left.host.ListenPacket("udp4", "0.0.0.0:51820"); err != nil {
				t.Fatal(err)
			}
		}, func() { port.Close() }},
		{"a taken name", "another program has an interface of that name", "ip link show weir0",
			func() { h.sh(t, "ip link add weir0 type veth peer name other; ip link set weir0 up") },
			func() { h.sh(t, "ip link del weir0") }},
		{"a tun device of the name", "another program has an interface of that name",
			"ip link show weir0",
			func() { h.sh(t, "ip tuntap add weir0 mode tun; ip link set weir0 up") },
			func() { h.sh(t, "ip link del weir0") }},
	}
}

// sh runs a command on the left host.
func (h *leakHosts) sh(t *testing.T, command string) {
	t.Helper()
	h.left.host.Run("sh", "-c", command)
}

// TestTunnelCannotBeOpened: a key is damaged, the port is taken, or an interface of the tunnel's
// name is there. The node works without the tunnel, reports why, and lets nothing for the peers
// leave in the clear. It has the tunnel again once the reason is gone.
func TestTunnelCannotBeOpened(t *testing.T) {
	t.Parallel()
	h := newLeakHosts(t, allowAll)
	h.meet("--keepalive", "1s")
	web, webPod := h.right.attach("web")
	nginx(t, web, 80)
	url := pageAt(webPod.Addrs[0], 80)
	rules := filepath.Join(h.left.root, "etc/weir/rules")
	all := h.obstacles(t)
	for _, c := range all {
		h.left.stop()
		// As after a boot: the kernel knows nothing of peers.
		h.sh(t, "ip route flush type unreachable; ip -6 route flush type unreachable")
		c.put()
		h.left.start("--rules", rules)
		h.never(t, c.name, func() {
			defer flood(t, h.left.host).stop()
			h.worksWithout(t, c, url)
			c.remove()
			h.left.problem(t, "")
		})
		reach(t, h.left.host, url)
	}
	h.withoutDescriptors(t)
	reach(t, h.left.host, url)
	// A peer that is removed while there is no tunnel is gone, too.
	h.left.stop()
	all[0].put()
	h.left.start("--rules", rules)
	h.never(t, "a removal without a tunnel", func() {
		defer flood(t, h.left.host).stop()
		h.left.weir("peer", "remove", "right")
	})
	h.left.weir("down")
	h.left.wait()
	if out := footprint(t, h.left); strings.Contains(out, "unreachable") {
		t.Errorf("down leaves\n%s", out)
	}
}

// worksWithout: the left node works without its tunnel, and refuses what needs one.
func (h *leakHosts) worksWithout(t *testing.T, c obstacle, url string) {
	if advice := h.left.problem(t, c.says); !strings.Contains(advice, c.advice) {
		t.Errorf("%s: the advice is %q", c.name, advice)
	}
	h.left.weir("fw", "add", "count", "ip", "from", "any", "to", "any")
	if out, err := curl(h.left.host, url); err == nil {
		t.Errorf("%s: reached %q", c.name, out)
	}
	if c.name != "a taken port" {
		return
	}
	_, stderr, err := h.left.try("peer", "add", "third", "--key", strings.Repeat("A", 43)+"=",
		"--pods", "10.99.0.0/24")
	if err == nil || !strings.Contains(stderr, "UDP port 51820") {
		t.Errorf("weir peer add: %v\n%s", err, stderr)
	}
	if p := h.left.peers().Peers; len(p) != 1 {
		t.Errorf("the peers are %+v", p)
	}
}

// withoutDescriptors takes them from the left agent: it lives, and has the tunnel again when there
// are some.
func (h *leakHosts) withoutDescriptors(t *testing.T) {
	t.Helper()
	pid := h.left.agentPID(t)
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 8, Max: limit.Max},
		nil); err != nil {
		t.Fatal(err)
	}
	h.never(t, "no descriptors", func() {
		defer flood(t, h.left.host).stop()
		h.sh(t, "ip link del weir0")
		time.Sleep(2 * time.Second)
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
			t.Fatal(err)
		}
		h.left.problem(t, "")
	})
	if h.left.agentPID(t) != pid {
		t.Error("without descriptors the agent ended")
	}
}

// TestLongKilledInAFlood: an agent that is killed at any moment, of a start as well, lets nothing
// for its peers leave in the clear.
func TestLongKilledInAFlood(t *testing.T) {
	t.Parallel()
	h := newLeakHosts(t, allowAll)
	h.meet()
	client, _ := h.left.attach("client")
	_, right := h.keys()
	floods := []*flooding{flood(t, h.left.host), flood(t, client)}
	for _, f := range floods {
		f.more(t, 10)
	}
	random := rand.New(rand.NewPCG(7, 15))
	h.never(t, "kills", func() {
		h.left.kill()
		for range 12 {
			ready := h.left.launch("--rules", filepath.Join(h.left.root, "etc/weir/rules"))
			pause := time.Duration(random.IntN(2500)) * time.Millisecond
			if random.IntN(2) == 0 {
				select {
				case <-ready:
				case <-time.After(testTimeout):
					t.Fatalf("not ready\n%s", h.left.stderr)
				}
				pause /= 20
				other := strings.Repeat(string(rune('a'+random.IntN(26))), 20) + right[20:]
				cmd := h.left.node.Command(weir, "--root", h.left.root, "--bpffs", h.left.bpffs,
					"peer", "add", "right", "--key", other,
					"--endpoint", "10.66.0.2:51820", "--pods", "10.88.2.0/24,fd00:88:2::/120")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				defer cmd.Wait()
			}
			time.Sleep(pause)
			h.left.kill()
		}
	})
	for _, f := range floods {
		f.stop()
	}
	h.left.start("--rules", filepath.Join(h.left.root, "etc/weir/rules"))
	if p := h.left.peers().Peers; len(p) != 1 || p[0].Name != "right" {
		t.Errorf("after the kills the peers are %+v", p)
	}
	h.left.problem(t, "")
}
