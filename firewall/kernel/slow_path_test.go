package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

// slowPathIDs returns the ids of the second programs that hooks call.
func slowPathIDs(t *testing.T, e *Engine) map[uint32]ebpf.ProgramID {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(e.dir, "slow_paths"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := map[uint32]ebpf.ProgramID{}
	for _, index := range []uint32{slowIn, slowOut} {
		var id uint32
		if err := m.Lookup(index, &id); err != nil {
			t.Fatal(err)
		}
		ids[index] = ebpf.ProgramID(id)
	}
	return ids
}

// TestSlowPathsFollowTheLoad: the hooks call the second programs of the engine before until the
// next one loads rules, and its own from then on. This holds also if a start was cut short in
// between. They stay when the process ends.
func TestSlowPathsFollowTheLoad(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	own := func() map[uint32]ebpf.ProgramID {
		t.Helper()
		ids := map[uint32]ebpf.ProgramID{}
		for index, p := range map[uint32]*ebpf.Program{slowIn: g.engine.objects.WeirInSlow,
			slowOut: g.engine.objects.WeirOutSlow} {
			info, err := p.Info()
			if err != nil {
				t.Fatal(err)
			}
			ids[index], _ = info.ID()
		}
		return ids
	}
	same := func(when string, want map[uint32]ebpf.ProgramID) {
		t.Helper()
		if got := slowPathIDs(t, g.engine); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the hooks call %v, not %v", when, got, want)
		}
	}
	first := own()
	same("at first", first)
	pins, _ := filepath.Glob(filepath.Join(g.engine.dir, "prog-*"))
	for _, p := range pins { // the next engine is one of another build
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
	g.reopen(t)
	same("before the Load", first)
	g.answers(t, "before the Load", "80")
	if err := g.engine.Load(compile(t, webRules)); err != nil {
		t.Fatal(err)
	}
	second := own()
	if second[slowIn] == first[slowIn] {
		t.Error("the programs were not loaded again")
	}
	same("after the Load", second)
	g.answers(t, "after the Load", "80")
	// As if a start had pinned its programs, and ended before it put them there.
	if err := g.engine.objects.SlowPaths.Put(uint32(slowOut),
		g.engine.objects.WeirInSlow); err != nil {
		t.Fatal(err)
	}
	g.reopen(t)
	if err := g.engine.Load(compile(t, webRules)); err != nil {
		t.Fatal(err)
	}
	if !g.engine.reused {
		t.Error("the programs were not taken over")
	}
	same("after a start that was cut short", second)
	if err := g.engine.Close(); err != nil {
		t.Fatal(err)
	}
	same("without a process", second)
	g.answers(t, "without a process", "80")
}

// TestHookWithoutItsSecondProgram: what the first program leaves to the second is dropped if that
// is not there.
func TestHookWithoutItsSecondProgram(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	if err := e.Load(compile(t, "add allow udp from any to any keep-state\n")); err != nil {
		t.Fatal(err)
	}
	run := func(n int, want int32) {
		t.Helper()
		ret, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: udpFrame(t, n, false)})
		if err != nil || int32(ret) != want {
			t.Errorf("flow %d: the verdict is %d, not %d (%v)", n, int32(ret), want, err)
		}
	}
	run(1, wentUp)
	if err := e.objects.SlowPaths.Delete(uint32(slowIn)); err != nil {
		t.Fatal(err)
	}
	run(1, wentUp)
	e.config.Epoch++ // forgets which rules are cached
	if err := e.putConfigLocked(); err != nil {
		t.Fatal(err)
	}
	run(2, wasShot)
	if err := e.putSlowPaths(byName[ebpf.Program](&e.objects.weirPrograms)); err != nil {
		t.Fatal(err)
	}
	run(2, wentUp)
}

// TestCachedDrop: what a cached rule refuses is dropped and counted by the first program of a hook.
// While drops are watched, the second one drops and reports it.
func TestCachedDrop(t *testing.T) {
	t.Parallel()
	stayOnFirstCPU(t)
	e := newEngine(t)
	a := newAsker(t, e, "add 100 deny udp from any to any 53\nadd 200 allow ip from any to any\n")
	drop := func(want uint64) {
		t.Helper()
		ret, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: udpFrame(t, 1, false)})
		if err != nil || int32(ret) != wasShot {
			t.Errorf("the verdict is %d (%v)", int32(ret), err)
		}
		n, err := e.Decisions()
		a.must(err)
		refused := n[firewall.Decision{Dir: firewall.In, Reason: firewall.ReasonRule}].Packets
		if rules, err := e.Rules(); err != nil || rules[0].Packets != want || refused != want {
			t.Errorf("%v (%v), and %d refused in all, want %d", rules[0], err, refused, want)
		}
	}
	drop(1)
	a.must(e.objects.SlowPaths.Delete(uint32(slowIn)))
	drop(2)
	a.must(e.Subscribe(firewall.EventDrop))
	drop(2)
	a.must(e.putSlowPaths(byName[ebpf.Program](&e.objects.weirPrograms)))
	drop(3)
}

// TestCachedRuleOfAForwardedPacket: the rules where a forwarded packet leaves decide about it, too,
// if a rule without a state lets it pass where it comes in, and that rule is cached.
func TestCachedRuleOfAForwardedPacket(t *testing.T) {
	f := newFrames(t, "add 1 check-state\nadd 10 allow udp from any to any in\n"+
		"add 20 deny udp from any to any 99 out\nadd 30 allow ip from any to any keep-state\n")
	for _, from := range []netip.AddrPort{end(outsideAddr, 1000), end(podB, 1000)} {
		for range 20 { // each CPU has its own cache
			if code, _, _ := f.sendData(from, end(podA, 98), build.UDP{}, 20); code != redirected {
				t.Errorf("from %s: what may leave ends with %d", from, code)
			}
			if code, _, _ := f.sendData(from, end(podA, 99), build.UDP{}, 20); code != wasShot {
				t.Errorf("from %s: what may not leave ends with %d", from, code)
			}
		}
	}
}
