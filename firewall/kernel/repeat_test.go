package kernel

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestRepeatedSYN sends SYNs several times while cookies are on: each is answered once, and again
// when as much time has passed as a client lets pass before it asks again.
func TestRepeatedSYN(t *testing.T) {
	t.Parallel()
	const rules = "add check-state\nadd 100 allow tcp from any to me 8080 setup keep-state\n"
	t.Run("plain", func(t *testing.T) { repeatSYN(t, rules, false) })
	t.Run("with published ports", func(t *testing.T) { repeatSYN(t, rules, true) })
	t.Run("no look-up first", func(t *testing.T) {
		repeatSYN(t, "add 50 count tcp from any to any\n"+rules, false)
	})
}

// onFirstCPU runs f on one CPU: each knows what it has answered itself.
func onFirstCPU(f func() error) error {
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return err
	}
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	defer unix.SchedSetaffinity(0, &old)
	return f()
}

// stayOnFirstCPU keeps the goroutine of a test on one CPU, with which lies what one call leaves for
// the next. The thread ends with the goroutine.
func stayOnFirstCPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
}

// synFrame returns a SYN from one port of a client.
func synFrame(t *testing.T, ip build.Layer, seq uint32) []byte {
	t.Helper()
	b := enginetest.Packet(t, ip, build.TCP{SrcPort: 5000, DstPort: 8080, Seq: seq,
		Flags: packet.FlagSYN, Window: 64240})
	return append(frameFor(b), b...)
}

func repeatSYN(t *testing.T, rules string, publish bool) {
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 20000, 2000, 500
	g := newPairLabWith(t, webRules, o)
	listenTCP(t, g.server, "[::]:8080")
	if err := g.engine.Load(compile(t, rules)); err != nil {
		t.Fatal(err)
	}
	if publish {
		p := forward.Published{Proto: packet.ProtoTCP,
			Host: netip.MustParseAddrPort("0.0.0.0:9999"),
			Pod:  netip.MustParseAddrPort("10.88.0.2:80")}
		if err := g.server.Do(func() error {
			return g.engine.SetPublished([]forward.Published{p})
		}); err != nil {
			t.Fatal(err)
		}
	}
	f := g.floodUntilCookies(t, 8080)
	stopFlood(t, f)
	before := g.stats(t).Cookies.Sent
	g.sendSYNs(t)
	decided, err := g.engine.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	if n := firewall.ByReason(decided)[firewall.ReasonCookieRepeated]; n != 4 {
		t.Errorf("%d SYNs are counted as repeated, not 4", n)
	}
	if sent := g.stats(t).Cookies.Sent - before; sent != 4 {
		t.Errorf("%d SYNs were answered, not 4", sent)
	}
}

// sendSYNs sends SYNs of which four are repeated too early.
func (g *pairLab) sendSYNs(t *testing.T) {
	t.Helper()
	ip4 := build.IPv4{Src: netip.MustParseAddr("12.0.0.1"), Dst: netip.MustParseAddr("10.0.0.1")}
	ip6 := build.IPv6{Src: netip.MustParseAddr("fd12::1"), Dst: netip.MustParseAddr("fd00::1")}
	const answered, dropped = 7, 2 // TC_ACT_REDIRECT, TC_ACT_SHOT
	send := func() error {
		for n, c := range []struct {
			frame []byte
			wait  time.Duration
			want  uint32
		}{
			{synFrame(t, ip4, 7), 0, answered}, {synFrame(t, ip4, 7), 0, dropped},
			{synFrame(t, ip4, 8), 0, answered}, {synFrame(t, ip4, 8), 0, dropped},
			{synFrame(t, ip4, 8), 0, dropped},
			{synFrame(t, ip6, 7), 0, answered}, {synFrame(t, ip6, 7), 0, dropped},
			{synFrame(t, ip4, 8), 600 * time.Millisecond, answered},
		} {
			time.Sleep(c.wait)
			ret, err := g.engine.objects.WeirIn.Run(&ebpf.RunOptions{Data: c.frame})
			if err != nil {
				return err
			}
			if ret != c.want {
				t.Errorf("SYN %d: the program said %d, not %d", n, ret, c.want)
			}
		}
		return nil
	}
	if err := g.server.Do(func() error { return onFirstCPU(send) }); err != nil {
		t.Fatal(err)
	}
}
