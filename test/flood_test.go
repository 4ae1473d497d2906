package test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// synFlood begins to send SYNs from random sources to a port of the server of a pair.
func synFlood(t *testing.T, p *pair, port uint16) *nstest.Frames {
	t.Helper()
	return floodOf(t, p, func(random *rand.Rand) build.Layer {
		return build.TCP{SrcPort: uint16(1024 + random.IntN(60000)), DstPort: port,
			Seq: random.Uint32(), Flags: packet.FlagSYN, Window: 64240}
	})
}

// udpFlood does so with datagrams.
func udpFlood(t *testing.T, p *pair, port uint16) *nstest.Frames {
	t.Helper()
	return floodOf(t, p, func(random *rand.Rand) build.Layer {
		return build.UDP{SrcPort: uint16(1024 + random.IntN(60000)), DstPort: port}
	})
}

// floodOf begins to send packets from random sources to the server of a pair.
func floodOf(t *testing.T, p *pair, next func(random *rand.Rand) build.Layer) *nstest.Frames {
	t.Helper()
	random := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	f, err := nstest.OpenFrames(p.client, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	var to net.HardwareAddr
	if err := p.server.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			to = i.HardwareAddr
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	f.Flood(func(n int) []byte {
		if n%50 == 0 {
			time.Sleep(time.Millisecond) // the machine has other work, too
		}
		var src [4]byte
		binary.BigEndian.PutUint32(src[:], 11<<24|random.Uint32N(1<<24))
		b, err := build.Packet(build.IPv4{Src: netip.AddrFrom4(src),
			Dst: netip.MustParseAddr("10.66.0.1")}, next(random))
		if err != nil {
			t.Error(err)
		}
		return append(append(append(append([]byte(nil), to...), f.MAC...), 0x08, 0), b...)
	})
	return f
}

// TestLongSYNFlood: SYNs from random sources do not keep others from a real nginx. Half-open states
// stay few, since SYN cookies come into use, and go out of use when the flood has ended; status,
// states and show report it.
func TestLongSYNFlood(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 80)
	file := filepath.Join(t.TempDir(), "weir.toml")
	if err := os.WriteFile(file, []byte("[states]\nhalf_open = 2000\n[timeouts]\nsyn = 2\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	p.start("--config", file, "--iface", "eth0", "--rules", webRules(t))
	reach(t, p.client, "http://10.66.0.1/")
	status := func() (s api.Status) {
		p.json(&s, "status")
		return s
	}
	if s := status(); s.Table.Cookies.Impossible != "" {
		t.Skipf("NOT TESTED: no SYN cookies here: %s", s.Table.Cookies.Impossible)
	} else if s.Table.Cookies.TimesOn != 0 || s.Table.HalfOpenMax != 2000 ||
		s.Table.PerSource != 500 {
		t.Fatalf("before: %+v", s.Table)
	}
	wait := func(what string, ok func(api.StateTable) bool) {
		t.Helper()
		for stop := time.Now().Add(testTimeout); !ok(status().Table); {
			time.Sleep(50 * time.Millisecond)
			if time.Now().After(stop) {
				t.Fatalf("not in time: %s: %+v", what, status().Table)
			}
		}
	}
	f := synFlood(t, p, 80)
	wait("cookies are on", func(s api.StateTable) bool { return s.Cookies.On })
	// They go out of use while the sender has to wait for its turn.
	wait("connections are opened by cookies", func(api.StateTable) bool {
		reach(t, p.client, "http://10.66.0.1/")
		reach(t, p.client, "http://[fd66::1]/")
		return status().Table.Cookies.Redeemed >= 20
	})
	if out, err := p.client.Command("curl", "-sS", "-m", fmt.Sprint(testTimeout.Seconds()), "-o",
		"/dev/null", "-w", "%{size_download}",
		"http://10.66.0.1/big").CombinedOutput(); err != nil ||
		string(out) != "67108864" {
		t.Errorf("64 MiB in the flood: %v %s", err, out)
	}
	for _, args := range [][]string{{"status"}, {"fw", "states"}} {
		eventually(t, "it shows the cookies", func() error {
			if out := p.weir(args...); !strings.Contains(out, "SYN cookies: ON, ") ||
				!strings.Contains(out, "of 2000 half-open (500 of one source)") {
				return fmt.Errorf("weir %v:\n%s", args, out[max(0, len(out)-600):])
			}
			return nil
		})
	}
	sent, err := f.Stop()
	if err != nil {
		t.Fatal(err)
	}
	s := status().Table
	t.Logf("%d SYNs: %+v", sent, s)
	if s.HalfOpen > 800 || s.Cookies.Sent == 0 {
		t.Errorf("in the flood: %+v", s)
	}
	wait("cookies are off", func(s api.StateTable) bool { return !s.Cookies.On })
	reach(t, p.client, "http://10.66.0.1/")
	times := fmt.Sprintf("SYN cookies: off (%d times on), ", status().Table.Cookies.TimesOn)
	if out := p.weir("status"); !strings.Contains(out, times) {
		t.Errorf("weir status:\n%s", out)
	}
}
