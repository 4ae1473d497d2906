package kernel

import (
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

const firstFlows = 1000

// calls has how long each call of inStep took.
type calls [2][firstFlows]time.Duration

// inStep calls f for each of firstFlows, on two threads that begin each call together.
func inStep(f func(cpu, n int)) *calls {
	var arrived atomic.Int64
	took := &calls{}
	onBothCPUs(func(cpu int) {
		for n := range firstFlows {
			for arrived.Add(1); arrived.Load() < int64(2*(n+1)); {
				runtime.Gosched() // the other may need this processor
			}
			begin := time.Now()
			f(cpu, n)
			took[cpu][n] = time.Since(begin)
		}
	})
	return took
}

// mayRefuse reports whether a packet of one CPU may have been refused: the other one, which had the
// first packet, lost its processor meanwhile. Otherwise its call would have taken as long as others
// do, and the first one waits for longer than that.
func (c *calls) mayRefuse(cpu, n int) bool {
	all := append(slices.Clone(c[0][:]), c[1][:]...)
	slices.Sort(all)
	return c[1-cpu][n] > all[len(all)/2]*3/2
}

// TestFirstPacketsOfALimit: two CPUs have the first two packets of a flow at the same time. A limit
// of one state lets both pass, unless one CPU loses its processor while it makes the state.
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
	took := inStep(func(cpu, n int) {
		code, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: frames[n]})
		if err != nil {
			t.Error(err)
		}
		codes[cpu][n] = int32(code)
	})
	all, err := e.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	for d, c := range all {
		if d.Reason != firewall.ReasonRule {
			t.Logf("%d packets were refused: %v", c.Packets, d.Reason)
		}
	}
	for n := range firstFlows {
		for cpu := range codes {
			if codes[cpu][n] == wasShot && !took.mayRefuse(cpu, n) {
				t.Errorf("flow %d: the packet of CPU %d was refused", n, cpu)
			}
		}
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
// leave from one and the same. This holds also if two CPUs have their first packets at the same
// time. Otherwise a pod gets the answers to the other one, whose translation has ended.
func TestFirstPacketsOfTwoPods(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 50000)
	var codes [2][firstFlows]int32
	var left [2][firstFlows]netip.AddrPort
	took := inStep(func(cpu, n int) {
		codes[cpu][n], left[cpu][n], _ = f.send(end([]netip.Addr{podA, podB}[cpu], 10000+n),
			end(outsideAddr, 53), build.UDP{})
	})
	sent := 0
	for n := range firstFlows {
		for cpu := range codes {
			if codes[cpu][n] == redirected {
				sent++
			} else if !took.mayRefuse(cpu, n) {
				t.Errorf("flow %d of CPU %d was refused", n, cpu)
			}
		}
		if codes[0][n] == redirected && left[0][n] == left[1][n] {
			t.Errorf("two flows left from %v", left[0][n])
		}
	}
	if n := len(f.pairs()); n != sent {
		t.Errorf("%d translations of %d flows, of which %d have left", n, 2*firstFlows, sent)
	}
}

// TestFirstPacketsToAPublishedPort: the first two packets of a flow to a published port pass, and
// reach the pod from one port, also if two CPUs have them at the same time. Nothing is left of a
// second state or translation. If one CPU loses its processor before it has made the translation,
// the packet of the other one may be refused.
func TestFirstPacketsToAPublishedPort(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	var codes [2][firstFlows]int32
	var from [2][firstFlows]netip.AddrPort
	took := inStep(func(cpu, n int) {
		codes[cpu][n], from[cpu][n], _ = f.send(end(outsideAddr, 10000+n), end(hostAddr, 8080),
			build.UDP{})
	})
	for n := range firstFlows {
		a, b := codes[0][n], codes[1][n]
		if a == redirected && b == wasShot && took.mayRefuse(1, n) ||
			a == wasShot && b == redirected && took.mayRefuse(0, n) {
			continue
		}
		if a != redirected || b != redirected || from[0][n] != from[1][n] {
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
