package overlay

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// portWorker refuses UDP to port 4001 and TCP to port 4002.
type portWorker struct{ seen [2]atomic.Uint64 }

func (w *portWorker) EvaluateBatch(in *firewall.Input, packets [][]byte, out []firewall.Verdict) {
	var p packet.Packet
	for i, b := range packets {
		p.Decode(b)
		dst := uint16(p.Ports)
		out[i] = firewall.Verdict{Pass: p.Reason == 0 && !(p.Proto == 17 && dst == 4001) &&
			!(p.Proto == 6 && dst == 4002), Rule: 7}
		w.seen[in.Hook.Dir].Add(1)
	}
}

// TestFilter refuses by port, on the way out and on the way in.
func TestFilter(t *testing.T) {
	for _, dir := range []firewall.Direction{firewall.Out, firewall.In} {
		var w portWorker
		var reported atomic.Uint64
		first := true
		a, b := pair(t, func(c *Config) {
			if first == (dir == firewall.Out) { // a filters what goes out, or b what comes in
				begin := time.Now()
				c.Filter = FilterBy(&w, func() time.Duration {
					return time.Since(begin)
				}, func(h firewall.Hook, v firewall.Verdict, p, quote []byte) {
					if h.Dir == dir && v.Rule == 7 && len(p) > 20 && len(quote) == len(p) &&
						(h.Recv != 0) == (dir == firewall.In) &&
						(h.Xmit != 0) == (dir == firewall.Out) {
						reported.Add(1)
					}
				})
			}
			first = false
		}, nil)
		echo(t, a, b, 100, 1000)
		server, err := b.ListenPacket("udp", b.addr+":4001")
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		c, err := a.DialContext(t.Context(), "udp", "10.99.0.2:4001")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range 10 { // none like the one before, so that each is filtered by itself
			c.Write([]byte("no no no no no")[:2+i])
		}
		server.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, _, err := server.ReadFrom(make([]byte, 10)); err == nil {
			t.Errorf("direction %d: a refused packet came through", dir)
		}
		dropped := func() uint64 {
			if dir == firewall.In {
				return b.dev.Stats().DroppedIn
			}
			return a.dev.Stats().DroppedOut
		}
		nstest.Eventually(t, "the drops are counted and reported", func() bool {
			return dropped() >= 10 && reported.Load() >= 10
		})
		if dropped() != 10 || reported.Load() != 10 {
			t.Errorf("direction %d: %d drops counted, %d reported, want 10", dir, dropped(),
				reported.Load())
		}
		download(t, a, b, 10<<20, nil)
		download(t, b, a, 10<<20, nil)
		// 20 MiB are 15,000 segments; the filter saw GSO packets where they came as such.
		if n := w.seen[0].Load() + w.seen[1].Load(); n > 15000 {
			t.Errorf("direction %d: %d packets were filtered", dir, n)
		}
	}
}

// TestWG looks at the device with wg(8), and changes it.
func TestWG(t *testing.T) {
	if _, err := exec.LookPath("wg"); err != nil {
		t.Skip("SKIPPED: no wg here (package wireguard-tools)")
	}
	if _, err := os.Stat(DefaultUAPI + "/weir0.sock"); err == nil {
		t.Skip("SKIPPED: this machine has a weir0")
	}
	first := true
	a, b := pair(t, func(c *Config) {
		if first {
			c.UAPI = DefaultUAPI
		}
		first = false
	}, func(p *Peer) {
		// No end has a choice of paths, so that nothing but wg(8) changes one.
		if p.Endpoints = p.Endpoints[:1]; p.Name == "a" {
			p.Endpoints = nil // b waits to be called
		}
	})
	echo(t, a, b, 100)
	wg := func(args ...string) string {
		t.Helper()
		out, err := a.Command("wg", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("wg %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	info, err := os.Stat(DefaultUAPI + "/weir0.sock")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	text := wg("show", "weir0")
	for _, want := range []string{"public key: " + a.key.Public().String(),
		"listening port: 51820", "peer: " + b.key.Public().String(),
		"endpoint: 10.9", "allowed ips: 10.99.0.2/32", "latest handshake: "} {
		if !strings.Contains(text, want) {
			t.Errorf("wg show lacks %q:\n%s", want, text)
		}
	}
	// A new peer without an endpoint, then b at one address of its own choice.
	other := newKey(t).Public().String()
	wg("set", "weir0", "peer", other, "allowed-ips", "10.66.0.0/16")
	if text := wg("show", "weir0", "endpoints"); !strings.Contains(text, other+"\t(none)") {
		t.Errorf("endpoints: %s", text)
	}
	wg("set", "weir0", "peer", other, "remove")
	wg("set", "weir0", "peer", b.key.Public().String(), "endpoint", "10.97.0.2:51820")
	echo(t, a, b, 100)
	if text := wg("show", "weir0", "dump"); strings.Contains(text, other) ||
		!strings.Contains(text, "10.97.0.2:51820") {
		t.Errorf("dump: %s", text)
	}
	a.dev.Close()
	if _, err := net.Dial("unix", DefaultUAPI+"/weir0.sock"); err == nil {
		t.Error("the socket is still there")
	}
}
