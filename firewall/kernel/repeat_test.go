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
	g := newPairLab(t, webRules)
	g.needCookies(t)
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
	g.keepCookiesOn(t)
	g.sendSYNs(t)
	decided, err := g.engine.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	if n := firewall.ByReason(decided)[firewall.ReasonCookieRepeated]; n != 4 {
		t.Errorf("%d SYNs are counted as repeated, not 4", n)
	}
	if sent := g.stats(t).Cookies.Sent; sent != 4 {
		t.Errorf("%d SYNs were answered, not 4", sent)
	}
}

// sendSYNs sends SYNs of which four are repeated too early. However long a step takes on a busy
// machine, it is early: an hour is added to what is left of each answer's time. The last step takes
// it away again.
func (g *pairLab) sendSYNs(t *testing.T) {
	t.Helper()
	ip4 := build.IPv4{Src: netip.MustParseAddr("12.0.0.1"), Dst: netip.MustParseAddr("10.0.0.1")}
	ip6 := build.IPv6{Src: netip.MustParseAddr("fd12::1"), Dst: netip.MustParseAddr("fd00::1")}
	const answered, dropped = 7, 2 // TC_ACT_REDIRECT, TC_ACT_SHOT
	const early, late = -time.Hour, time.Hour + answerTime
	send := func() error {
		for n, c := range []struct {
			frame []byte
			want  uint32
			then  time.Duration // passes
		}{
			{synFrame(t, ip4, 7), answered, early}, {synFrame(t, ip4, 7), dropped, 0},
			{synFrame(t, ip4, 8), answered, early}, {synFrame(t, ip4, 8), dropped, 0},
			{synFrame(t, ip4, 8), dropped, 0},
			{synFrame(t, ip6, 7), answered, early}, {synFrame(t, ip6, 7), dropped, late},
			{synFrame(t, ip6, 7), answered, 0},
		} {
			begin := monotonic()
			ret, err := g.engine.objects.WeirIn.Run(&ebpf.RunOptions{Data: c.frame})
			if err != nil {
				return err
			}
			if ret != c.want {
				t.Errorf("SYN %d: the program said %d, not %d", n, ret, c.want)
			}
			last, err := g.engine.ageAnswers(c.then)
			if err != nil {
				return err
			}
			// The programs' clock may be behind by some ticks.
			if least := begin + int64(answerTime*4/5); n == 0 && last < least {
				t.Errorf("an answer counts until %d, not until %d or later", last, least)
			}
		}
		return nil
	}
	if err := g.server.Do(func() error { return onFirstCPU(send) }); err != nil {
		t.Fatal(err)
	}
}
