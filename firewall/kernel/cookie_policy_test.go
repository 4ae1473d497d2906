package kernel

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestCookiesAskPoliciesLate: while cookies are on, IPsec policies are asked about a SYN that would
// get a cookie, once, and about no other. One that a policy wants answered encrypted gets a state.
func TestCookiesAskPoliciesLate(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	g.needCookies(t)
	listenTCP(t, g.server, "[::]:8080")
	listenTCP(t, g.server, "[::]:8081")
	if err := g.engine.Load(compile(t,
		"add check-state\nadd allow tcp from any to me 8080 setup keep-state\n")); err != nil {
		t.Fatal(err)
	}
	g.keepCookiesOn(t)
	asked := g.engine.noteLookUps(t, "ask_policy", "policies")
	if err := g.engine.SetStack(false, []Policy{policy("10.0.0.1/32", "12.0.0.2/32")}); err != nil {
		t.Fatal(err)
	}
	send := func() error {
		for _, c := range []struct {
			what, from string
			port       uint16
			want       int32
			asked      bool
		}{
			{"one that gets a cookie", "12.0.0.1", 8080, redirected, true},
			{"the same again", "12.0.0.1", 8080, wasShot, false},
			{"one that the rules refuse", "12.0.0.1", 8081, wasShot, false},
			{"one where no socket listens", "12.0.0.1", 8082, wasShot, false},
			{"one from a protected host", "12.0.0.2", 8080, wentUp, true},
		} {
			b := enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr(c.from),
				Dst: netip.MustParseAddr("10.0.0.1")}, build.TCP{SrcPort: 5000, DstPort: c.port,
				Seq: 7, Flags: packet.FlagSYN, Window: 64240})
			ret, err := g.engine.objects.WeirIn.Run(&ebpf.RunOptions{
				Data: append(frameFor(b), b...)})
			if err != nil {
				return err
			}
			if got := asked(); int32(ret) != c.want || got != c.asked {
				t.Errorf("%s: the program said %d, not %d; policies are asked: %v", c.what,
					int32(ret), c.want, got)
			}
			if _, err := g.engine.ageAnswers(-time.Hour); err != nil { // the next one is early
				return err
			}
		}
		return nil
	}
	if err := g.server.Do(func() error { return onFirstCPU(send) }); err != nil {
		t.Fatal(err)
	}
}

// noteLookUps has the second program of weir_in note when one of its functions looks something up
// in a map, by a tag in the last set of the table. noted reports whether that was so since it was
// called before.
func (e *Engine) noteLookUps(t *testing.T, function, in string) (noted func() bool) {
	t.Helper()
	const free = 1 << 3 // an entry that is free from the second tick on
	set := e.config.Sets - 1
	spec := committed(t)
	e.sizeAsLoaded(spec)
	meanwhile(t, spec.Programs["weir_in_slow"], function, in, every, set*ways, free)
	var noting *ebpf.Program
	if err := e.load(spec, map[string]**ebpf.Program{"weir_in_slow": &noting}); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { noting.Close() })
	if err := e.objects.SlowPaths.Put(uint32(slowIn), noting); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		t.Helper()
		var line weirTagLine
		if err := e.objects.Tags.Lookup(set, &line); err != nil {
			t.Fatal(err)
		}
		was := line.Tag[0]
		line.Tag[0] = 0
		if err := e.objects.Tags.Put(set, &line); err != nil {
			t.Fatal(err)
		}
		return was == free
	}
}
