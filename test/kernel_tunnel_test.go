//go:build wireguard

package test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// These tests need a kernel with WireGuard: make test-kernels runs them, with the tag.

// The settings of a host, by back end.
const (
	byKernel = "backend = \"kernel\"\n"
	byUser   = "backend = \"user\"\n"
)

// callPod connects to a port of a pod, within some time.
func callPod(from *nstest.Node, to netip.Addr, port uint16, most time.Duration) (net.Conn, error) {
	deadline := time.Now().Add(most)
	d := net.Dialer{Deadline: deadline}
	var c net.Conn
	err := from.Do(func() (err error) {
		c, err = d.Dial("tcp", netip.AddrPortFrom(to, port).String())
		return err
	})
	return c, err
}

// talk sends a word and wants it back.
func talk(t *testing.T, c net.Conn, word string) {
	t.Helper()
	c.SetDeadline(time.Now().Add(testTimeout))
	got := make([]byte, len(word))
	if _, err := io.WriteString(c, word); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != word {
		t.Fatalf("instead of %q came back %q: %v", word, got, err)
	}
}

// answers calls a port that is to answer, and returns the connection.
func answers(t *testing.T, from *nstest.Node, to netip.Addr, port uint16) net.Conn {
	t.Helper()
	c, err := callPod(from, to, port, testTimeout)
	if err != nil {
		t.Fatalf("from %s: %v", from, err)
	}
	t.Cleanup(func() { c.Close() })
	talk(t, c, "hello")
	return c
}

// silent calls a port that the rules refuse.
func silent(t *testing.T, from *nstest.Node, to netip.Addr, port uint16) {
	t.Helper()
	if c, err := callPod(from, to, port, 3*time.Second); err == nil {
		c.Close()
		t.Errorf("from %s: %s answers at port %d although the rules refuse it", from, to, port)
	}
}

// tunnelLink is the interface of a host's tunnel.
func (h *podHost) tunnelLink() (nl.Link, error) { return h.host.Netlink().LinkByName("weir0") }

// wantsTunnel checks what the status says of the tunnel.
func (h *podHost) wantsTunnel(t *testing.T, backend string) {
	t.Helper()
	var s api.Status
	nstest.Eventually(t, "the tunnel is there", func() bool {
		s = api.Status{}
		h.json(&s, "status")
		return s.Tunnel != nil
	})
	hook := ""
	for _, i := range s.Interfaces {
		if i.Name == "weir0" {
			hook = i.Hook
		}
	}
	guarded := hook == "tunnel"
	if backend == "kernel" {
		guarded = hook == "tcx" || hook == "clsact"
	}
	if s.Tunnel.Backend != backend || s.Tunnel.Reason != "" || !guarded || !s.Healthy {
		t.Errorf("the tunnel is %+v, its hook %q: %+v", s.Tunnel, hook, s.Problems)
	}
}

// TestKernelTunnel: pods of two hosts reach each other through the kernel's WireGuard at one or
// both ends. They do so exactly where the rules of both say, with the same rules as in user space.
func TestKernelTunnel(t *testing.T) {
	for name, backends := range map[string][2]string{"both": {byKernel, byKernel},
		"left": {byKernel, byUser}} {
		t.Run(name, func(t *testing.T) {
			h := newHostsWith(t, backends, wireRules+`
add 1000 deny tcp from any to any 81 out via weir0
add 1010 reset tcp from any to any 83 out xmit weir0
add 1020 deny tcp from any to any 80 recv pod:* xmit weir0
add check-state
add allow tcp from any to any setup keep-state
add allow icmp from any to any keep-state
`, wireRules+`
add 1000 deny tcp from any to any 82 in recv weir0
add check-state
add allow tcp from any to any setup keep-state
add allow icmp from any to any keep-state
`)
			h.meet()
			web, webPod := h.right.attach("web")
			echoes(t, web, 80, 81, 82, 83)
			client, _ := h.left.attach("client")
			at := webPod.Addrs[0]
			for _, a := range webPod.Addrs {
				answers(t, client, a, 80) // and 1020 does not match: what leaves has no recv
				answers(t, h.left.host, a, 80)
			}
			if out, err := client.Command("ping", "-c", "1", "-w", "60",
				at.String()).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			silent(t, client, at, 81)
			silent(t, client, at, 82)
			if _, err := callPod(client, at, 83, testTimeout); !errors.Is(err,
				syscall.ECONNREFUSED) {
				t.Errorf("a port that is reset: %v", err)
			}
			h.left.wantsTunnel(t, "kernel")
			h.counted(t)
			for _, one := range []*podHost{h.left, h.right} {
				p := one.peers()
				if len(p.Peers) != 1 || p.Peers[0].Handshake == nil || p.Peers[0].Received == 0 ||
					p.Peers[0].Sent == 0 || !strings.HasSuffix(p.Peers[0].Path, ":51820") {
					t.Errorf("weir peer list -j: %+v", p)
				}
			}
			c := answers(t, client, at, 80)
			h.left.weir("peer", "remove", "right")
			ended(t, c)
			silent(t, client, at, 80)
			h.left.weir("down")
			if l, err := h.left.tunnelLink(); !errors.Is(err, nl.ErrNoLink) {
				t.Errorf("weir down leaves %+v, %v", l, err)
			}
		})
	}
}

// TestKernelSilentPeer is TestLongSilentPeer with the kernel's WireGuard.
func TestKernelSilentPeer(t *testing.T) {
	const all = "add allow ip from any to any\n"
	silentPeer(t, newHostsWith(t, [2]string{byKernel, byUser}, all, all), all)
}

// counted checks that the rules in the tunnel count what they refused, and say so.
func (h *hosts) counted(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		host   *podHost
		number uint16
		hit    bool
	}{{h.left, 1000, true}, {h.left, 1010, true}, {h.left, 1020, false}, {h.right, 1000, true}} {
		var r api.Rules
		c.host.json(&r, "fw", "show")
		for _, one := range r.Rules {
			if one.Number == c.number && (one.Packets > 0) != c.hit {
				t.Errorf("rule %d of %s has %d packets", c.number, c.host.host, one.Packets)
			}
		}
	}
	if out := h.left.weir("flow", "watch", "--since", "5m", "--past", "drop"); !strings.Contains(
		out, "weir0") {
		t.Errorf("weir flow watch does not show what was refused in the tunnel:\n%s", out)
	}
}

// ended waits until nothing comes back through a connection.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(3 * time.Second))
	_, err := io.WriteString(c, "still there?")
	if err == nil {
		_, err = c.Read(make([]byte, 100))
	}
	if err == nil {
		t.Error("a connection to a removed peer continues")
	}
}

// clearCount counts the packets to a network that come to an interface as they are.
func clearCount(t *testing.T, n *nstest.Node, iface string, to netip.Prefix) *atomic.Uint64 {
	t.Helper()
	var fd int
	if err := n.Do(func() (err error) {
		const proto = unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8 // as in a packet
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, proto)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var count atomic.Uint64
	stop := make(chan struct{})
	ended := make(chan struct{})
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Usec: 100000}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		for b := make([]byte, 100); ; {
			select {
			case <-stop:
				unix.Close(fd)
				return
			default:
			}
			size, _, err := unix.Recvfrom(fd, b, 0)
			if err == nil && size >= 20 && to.Contains(netip.AddrFrom4([4]byte(b[16:20]))) {
				count.Add(1)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
	return &count
}
