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

// TestFirstPacketsOfALimit: two CPUs have the first two packets of a flow at the same time. A limit
// of one state lets both pass. A CPU that loses its processor while it makes the state may lose the
// other packet, so a few may be refused.
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
	inStep(func(_, n int) {
		if _, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: frames[n]}); err != nil {
			t.Error(err)
		}
	})
	all, err := e.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	refused := uint64(0)
	for d, c := range all {
		if d.Reason != firewall.ReasonRule {
			t.Logf("%d packets were refused: %v", c.Packets, d.Reason)
			refused += c.Packets
		}
	}
	if refused > firstFlows/20 {
		t.Errorf("of %d flows, %d packets were refused", firstFlows, refused)
	}
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
// leave from one and the same, also if two CPUs have their first packets at the same time.
// Otherwise a pod gets the answers to the other one, whose translation has ended.
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
			if codes[cpu][n] == redirected {
				sent++
			}
		}
		if codes[0][n] == redirected && left[0][n] == left[1][n] {
			t.Errorf("two flows left from %v", left[0][n])
		}
	}
	if n := len(f.pairs()); n != sent || sent < 2*firstFlows-firstFlows/20 {
		t.Errorf("%d translations of %d flows, of which %d have left", n, 2*firstFlows, sent)
	}
}

// TestFirstPacketsToAPublishedPort: the first two packets of a flow to a published port pass, and
// reach the pod from one port, also if two CPUs have them at the same time. Nothing is left of a
// second state or translation. A CPU that loses its processor before it has made the translation
// may lose the other packet, so a few may be refused.
func TestFirstPacketsToAPublishedPort(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	var codes [2][firstFlows]int32
	var from [2][firstFlows]netip.AddrPort
	inStep(func(cpu, n int) {
		codes[cpu][n], from[cpu][n], _ = f.send(end(outsideAddr, 10000+n), end(hostAddr, 8080),
			build.UDP{})
	})
	refused := 0
	for n := range firstFlows {
		a, b := codes[0][n], codes[1][n]
		if a == redirected && b == wasShot || a == wasShot && b == redirected {
			refused++
		} else if a != redirected || b != redirected || from[0][n] != from[1][n] {
			t.Errorf("flow %d: %d and %d, from %v and from %v", n, a, b, from[0][n], from[1][n])
		}
	}
	if refused > firstFlows/20 {
		t.Errorf("of %d flows, %d packets were refused", firstFlows, refused)
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
