package kernel

import (
	"cmp"
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

// calls has how long each run of runInStep took.
type calls [2][firstFlows]time.Duration

// inStep calls f for each of firstFlows, on two threads that begin each call together. Both do so
// within a call of in.
func inStep(t testing.TB, in func(func() error) error, f func(cpu, n int) error) {
	t.Helper()
	var arrived atomic.Int64
	onBothCPUs(func(cpu int) {
		if err := in(func() (failed error) {
			for n := range firstFlows {
				for arrived.Add(1); arrived.Load() < int64(2*(n+1)); {
					runtime.Gosched() // the other may need this processor
				}
				failed = cmp.Or(failed, f(cpu, n))
			}
			return failed
		}); err != nil {
			t.Error(err)
		}
	})
}

// here does something in no other namespace.
func here(f func() error) error { return f() }

// runInStep runs a program for a packet of each of firstFlows on two CPUs at the same time. It
// returns the codes, and how long the runs took, and nothing beside them.
func runInStep(t *testing.T, in func(func() error) error, p *ebpf.Program,
	packets *[2][firstFlows]*ebpf.RunOptions) (codes [2][firstFlows]int32, took *calls) {
	t.Helper()
	took = &calls{}
	inStep(t, in, func(cpu, n int) error {
		begin := time.Now()
		code, err := p.Run(packets[cpu][n])
		took[cpu][n] = time.Since(begin)
		codes[cpu][n] = int32(code)
		return err
	})
	return codes, took
}

// sent is what became of the packets of two CPUs: the codes, from whom they then go, how long each
// run took.
type sent struct {
	codes [2][firstFlows]int32
	from  [2][firstFlows]netip.AddrPort
	*calls
}

// sendInStep sends a packet of each flow on two CPUs at the same time.
func (f *frames) sendInStep(t *testing.T, ends func(cpu, n int) (from, to netip.AddrPort)) *sent {
	t.Helper()
	s := &sent{}
	var packets [2][firstFlows]*ebpf.RunOptions
	for cpu := range packets {
		for n := range firstFlows {
			from, to := ends(cpu, n)
			at, frame := f.frame(from, to, build.UDP{}, 0)
			packets[cpu][n] = runOptions(0, at.index, frame)
		}
	}
	s.codes, s.calls = runInStep(t, f.host.Do, f.engine.objects.WeirIn, &packets)
	for cpu := range packets {
		for n, o := range packets[cpu] {
			s.from[cpu][n], _, _ = endsOf(o.DataOut)
		}
	}
	return s
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
	var packets [2][firstFlows]*ebpf.RunOptions
	for cpu := range packets {
		for n := range firstFlows {
			packets[cpu][n] = &ebpf.RunOptions{Data: udpFrame(t, n, false)}
		}
	}
	codes, took := runInStep(t, here, e.objects.WeirIn, &packets)
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
	left := f.sendInStep(t, func(_, n int) (from, to netip.AddrPort) {
		return end(podA, 10000+n), end(outsideAddr, 53)
	}).from
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
	s := f.sendInStep(t, func(cpu, n int) (from, to netip.AddrPort) {
		return end([]netip.Addr{podA, podB}[cpu], 10000+n), end(outsideAddr, 53)
	})
	left := 0
	for n := range firstFlows {
		for cpu := range s.codes {
			if s.codes[cpu][n] == redirected {
				left++
			} else if !s.mayRefuse(cpu, n) {
				t.Errorf("flow %d of CPU %d was refused", n, cpu)
			}
		}
		if s.codes[0][n] == redirected && s.from[0][n] == s.from[1][n] {
			t.Errorf("two flows left from %v", s.from[0][n])
		}
	}
	if n := len(f.pairs()); n != left {
		t.Errorf("%d translations of %d flows, of which %d have left", n, 2*firstFlows, left)
	}
}

// TestFirstPacketsToAPublishedPort: the first two packets of a flow to a published port pass, and
// reach the pod from one port, also if two CPUs have them at the same time. Nothing is left of a
// second state or translation. If one CPU loses its processor before it has made the translation,
// the packet of the other one may be refused.
func TestFirstPacketsToAPublishedPort(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	s := f.sendInStep(t, func(_, n int) (from, to netip.AddrPort) {
		return end(outsideAddr, 10000+n), end(hostAddr, 8080)
	})
	for n := range firstFlows {
		a, b := s.codes[0][n], s.codes[1][n]
		if a == redirected && b == wasShot && s.mayRefuse(1, n) ||
			a == wasShot && b == redirected && s.mayRefuse(0, n) {
			continue
		}
		if a != redirected || b != redirected || s.from[0][n] != s.from[1][n] {
			t.Errorf("flow %d: %d and %d, from %v and from %v", n, a, b, s.from[0][n], s.from[1][n])
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
