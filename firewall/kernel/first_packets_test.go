package kernel

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

const firstFlows = 1000

// Two CPUs have packets of one flow at the same time. If one loses its processor in between, the
// other one waits for it only so long, and then may refuse its packet. So of two packets these
// tests want one to pass, and the reason for a refusal. That a packet waits is shown where no CPU
// is away: TestWaitForTheStateOfALimit, TestWaitForTheOtherFirstPacket.

// inStep calls f for each of firstFlows, on two threads that begin each call together.
func inStep(f func(cpu, n int)) {
	var arrived atomic.Int64
	onBothCPUs(func(cpu int) {
		for n := range firstFlows {
			for arrived.Add(1); arrived.Load() < int64(2*(n+1)); {
				runtime.Gosched() // the other may need this processor
			}
			f(cpu, n)
		}
	})
}

// onePasses makes sure that of the two packets of each flow one passes, and that those which were
// dropped were so for a reason.
func onePasses(t *testing.T, e *Engine, codes *[2][firstFlows]int32, why firewall.Reason) {
	t.Helper()
	dropped := uint64(0)
	for n := range firstFlows {
		if codes[0][n] == wasShot && codes[1][n] == wasShot {
			t.Errorf("both packets of flow %d were refused", n)
		}
		for cpu := range codes {
			dropped += uint64(bit(codes[cpu][n] == wasShot))
		}
	}
	all, err := e.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	if n := firewall.ByReason(all)[why]; n != dropped {
		t.Errorf("%d packets were refused, %d of them: %v", dropped, n, why)
	}
	t.Logf("%d packets were refused", dropped)
}

// TestFirstPacketsOfALimit: two CPUs have the first two packets of a flow at the same time. A limit
// of one state lets the flow pass, and counts one state for it.
func TestFirstPacketsOfALimit(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen = 20000, 20000
	e := newEngineWith(t, o)
	if err := e.Load(compile(t,
		"add check-state\nadd allow udp from any to any limit src-addr 1\n")); err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for n := range firstFlows {
		frames = append(frames, udpFrame(t, n, false))
	}
	var codes [2][firstFlows]int32
	inStep(func(cpu, n int) {
		code, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: frames[n]})
		if err != nil {
			t.Error(err)
		}
		codes[cpu][n] = int32(code)
	})
	onePasses(t, e, &codes, firewall.ReasonLimit)
	if n := e.agree(t); n.live != firstFlows || n.tracked != firstFlows {
		t.Errorf("%d flows: %+v", firstFlows, n)
	}
}

// TestFirstPacketsOfAMasqueradedFlow: the first two packets of a pod's flow leave by one port, also
// if two CPUs have them at the same time. Otherwise the answer to one of them finds no translation.
func TestFirstPacketsOfAMasqueradedFlow(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 50000)
	var left [2][firstFlows]netip.AddrPort
	inStep(func(cpu, n int) {
		_, left[cpu][n], _ = f.send(end(podA, 10000+n), end(outsideAddr, 53), build.UDP{})
	})
	for n := range firstFlows {
		if left[0][n] != left[1][n] || left[0][n].Addr() != hostAddr {
			t.Errorf("flow %d left from %v and from %v", n, left[0][n], left[1][n])
		}
	}
}

// TestFirstPacketsOfTwoPods: flows of two pods, which both could leave from their own port, never
// leave from one and the same. This holds also if two CPUs have their first packets at the same
// time. Otherwise a pod gets the answers to the other one, whose translation has ended.
func TestFirstPacketsOfTwoPods(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 50000)
	var codes [2][firstFlows]int32
	var left [2][firstFlows]netip.AddrPort
	inStep(func(cpu, n int) {
		codes[cpu][n], left[cpu][n], _ = f.send(end([]netip.Addr{podA, podB}[cpu], 10000+n),
			end(outsideAddr, 53), build.UDP{})
	})
	sent := 0
	for n := range firstFlows {
		for cpu := range codes {
			sent += int(bit(codes[cpu][n] == redirected))
		}
		if codes[0][n] == redirected && left[0][n] == left[1][n] {
			t.Errorf("two flows left from %v", left[0][n])
		}
	}
	onePasses(t, f.engine, &codes, firewall.ReasonNATPorts)
	if n := len(f.pairs()); n != sent {
		t.Errorf("%d translations of %d flows, of which %d have left", n, 2*firstFlows, sent)
	}
}

// TestFirstPacketsToAPublishedPort: the first two packets of a flow to a published port reach the
// pod from one port, also if two CPUs have them at the same time. Nothing is left of a second state
// or translation.
func TestFirstPacketsToAPublishedPort(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	var codes [2][firstFlows]int32
	var from [2][firstFlows]netip.AddrPort
	inStep(func(cpu, n int) {
		codes[cpu][n], from[cpu][n], _ = f.send(end(outsideAddr, 10000+n), end(hostAddr, 8080),
			build.UDP{})
	})
	onePasses(t, f.engine, &codes, firewall.ReasonNATPorts)
	for n := range firstFlows {
		a, b := codes[0][n], codes[1][n]
		if a == redirected && b == redirected && from[0][n] != from[1][n] ||
			a != b && a != wasShot && b != wasShot {
			t.Errorf("flow %d: %d and %d, from %v and from %v", n, a, b, from[0][n], from[1][n])
		}
	}
	if n := len(f.pairs()); n != firstFlows {
		t.Errorf("%d translations of %d flows", n, firstFlows)
	}
	states := 0
	for x, err := range f.engine.entries() {
		f.must(err)
		if _, to := x.original(); !x.translation() && to == end(podA, 80) {
			states++
		}
	}
	if states != firstFlows {
		t.Errorf("%d states of %d flows", states, firstFlows)
	}
}

// TestWaitForTheStateOfALimit: a packet of the flow that has entered the track of its limit last
// waits for the state that another CPU makes. It is refused if none comes. Packets of other flows
// do not wait: an outsider could send any number of them.
func TestWaitForTheStateOfALimit(t *testing.T) {
	t.Parallel()
	f := newFrames(t, "add check-state\nadd allow udp from any to any limit src-addr 1\n"+
		"add allow icmp from any to any\n")
	client, host := end(outsideAddr, 5000), end(hostAddr, 9)
	send := func(from netip.AddrPort) int32 {
		code, _, _ := f.send(from, host, build.UDP{})
		return code
	}
	if code := send(client); code != wentUp {
		t.Fatalf("the first packet: %d", code)
	}
	state := f.stateOf(client, host)
	const mark = 1 << 60 // the tag of an entry that is free for a long time
	unused := state.place ^ 1
	for _, c := range []struct {
		what  string
		from  netip.AddrPort
		place uint32 // whose tag another CPU sets if the packet waits
		tag   uint64
		code  int32
		waits bool
	}{
		{"the state comes", client, state.place, state.tag, wentUp, true},
		{"no state comes", client, unused, mark, wasShot, true},
		{"another flow", end(outsideAddr, 5001), unused, mark, wasShot, false},
	} {
		f.setTag(unused, 0)
		f.setTag(state.place, state.tag&identity) // it is being made
		f.setTagInAWait(c.place, c.tag)
		before := f.drops(firewall.ReasonLimit)
		if code := send(c.from); code != c.code {
			t.Errorf("%s: %d", c.what, code)
		}
		if waited := f.tagAt(c.place) == c.tag; waited != c.waits {
			t.Errorf("%s: it has waited: %v", c.what, waited)
		}
		if n := f.drops(firewall.ReasonLimit) - before; n != uint64(bit(c.code == wasShot)) {
			t.Errorf("%s: %d packets were refused by the limit", c.what, n)
		}
	}
	f.setTag(unused, 0)
	f.setTag(state.place, state.tag)
	if again := f.stateOf(client, host); again.place != state.place {
		t.Errorf("the state at %d is %+v", state.place, again)
	}
}

// setTagInAWait has packets set the tag at a place while they wait for the state of a limit.
func (f *frames) setTagInAWait(place uint32, tag uint64) {
	f.t.Helper()
	spec := committed(f.t.(*testing.T))
	f.engine.sizeAsLoaded(spec)
	meanwhile(f.t.(*testing.T), spec.Programs["weir_in_slow"], "find_own", "cpus", 1, place, tag)
	var late *ebpf.Program
	f.must(f.engine.load(spec, map[string]**ebpf.Program{"weir_in_slow": &late}))
	defer late.Close()
	f.must(f.engine.objects.SlowPaths.Put(uint32(slowIn), late))
}
