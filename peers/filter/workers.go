package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
)

// workerRules keep every state in a track, which all workers share.
const workerRules = `
add 1 check-state
add 2 allow udp from any to any out limit src-addr 1000000
`

// workerFlows is how many flows each worker has.
const workerFlows = 10_000

// flowWorker is one worker with packets of its own flows. One packet of every batch begins a new
// one.
type flowWorker struct {
	w      *soft.Worker
	steer  func([]byte) int
	index  int
	in     firewall.Input
	old    [][]byte
	pkts   [][]byte
	out    []firewall.Verdict
	next   uint32
	at     int
	ticked time.Duration
	work   chan *round
	done   chan struct{}
	_      [128]byte // two workers share no cache line
}

// round is a stretch of work that workers begin at the same moment. The time that their
// threads take to wake does not count.
type round struct {
	packets int // for each worker
	missing atomic.Int32
	mu      sync.Mutex
	start   time.Time // of the first worker
	end     time.Time // of the last
}

// do lets a worker take part.
func (r *round) do(l *flowWorker) {
	r.missing.Add(-1)
	for r.missing.Load() > 0 {
	}
	start := time.Now()
	l.evaluate(r.packets)
	end := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.start.IsZero() || start.Before(r.start) {
		r.start = start
	}
	if end.After(r.end) {
		r.end = end
	}
}

// newFlowWorker makes worker index of the engine one that runs on the nth CPU.
func newFlowWorker(e *soft.Engine, index, cpu int) (*flowWorker, error) {
	l := &flowWorker{w: e.Worker(index), steer: e.Steer, index: index, next: uint32(index) << 24,
		out: make([]firewall.Verdict, batch),
		in: firewall.Input{Hook: firewall.Hook{Dir: firewall.Out,
			Xmit: 1}}, work: make(chan *round), done: make(chan struct{})}
	f, err := newFlows(1, true)
	if err != nil {
		return nil, err
	}
	first := f.pkts[0]
	// side by side, as a ring of them lies in memory
	buffers := make([]byte, workerFlows*len(first))
	for len(l.old) < workerFlows {
		b := buffers[:len(first):len(first)]
		buffers = buffers[len(first):]
		copy(b, first)
		l.renew(b)
		l.old = append(l.old, b)
		l.w.Evaluate(&l.in, b)
		answer := append([]byte(nil), b...)
		copy(answer[12:16], b[16:20])
		copy(answer[16:20], b[12:16])
		copy(answer[20:22], b[22:24])
		copy(answer[22:24], b[20:22])
		comes := firewall.Input{Hook: firewall.Hook{Recv: 1}}
		if v := l.w.Evaluate(&comes, answer); v.State != firewall.StateHit {
			return nil, fmt.Errorf("the answer of flow %d: %+v", len(l.old), v)
		}
	}
	l.pkts = make([][]byte, batch)
	pinned := make(chan error)
	go func() {
		runtime.LockOSThread()
		pinned <- pin(cpu)
		for r := range l.work {
			r.do(l)
			l.done <- struct{}{}
		}
	}()
	return l, <-pinned
}

// pin binds the calling thread to the nth of the CPUs that it may use: two workers on two cores
// must not wait for the scheduler to part them.
func pin(nth int) error {
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("affinity: %w", err)
	}
	for cpu := range len(may) * 64 {
		if !may.IsSet(cpu) {
			continue
		}
		if nth == 0 {
			one.Set(cpu)
			return unix.SchedSetaffinity(0, &one)
		}
		nth--
	}
	return errors.New("affinity: too few CPUs")
}

// renew makes the packet one of the next flow that belongs to the worker.
func (l *flowWorker) renew(b []byte) {
	for {
		l.next++
		binary.BigEndian.PutUint32(b[16:], l.next)
		if l.steer(b) == l.index {
			return
		}
	}
}

// evaluate evaluates n packets, a second of simulated time for each 2 million.
func (l *flowWorker) evaluate(n int) {
	for ; n > 0; n -= batch {
		for i := range l.pkts {
			l.pkts[i] = l.old[l.at]
			if l.at += 7919; l.at >= workerFlows {
				l.at -= workerFlows
			}
		}
		l.renew(l.pkts[0])
		l.in.Now += batch * 500 * time.Nanosecond
		l.w.EvaluateBatch(&l.in, l.pkts, l.out)
		if l.in.Now-l.ticked >= 10*time.Millisecond {
			l.ticked = l.in.Now
			l.w.Tick(l.in.Now, nil)
		}
	}
}

// twoWorkers compares one worker with two that work at the same time, of one engine and of two that
// share nothing: these show what two cores of the machine do.
func twoWorkers(rounds int, _ time.Duration) error {
	fmt.Print("### Two workers, UDP flows in a shared track under a shared maximum, one " +
		"packet in 64 begins a new one\n\n" +
		"| workers | million packets per second, best round | times one worker |\n" +
		"| --- | --- | --- |\n")
	if runtime.NumCPU() < 2 {
		fmt.Println("| - | one CPU only: not measured | - |")
		return nil
	}
	one, err := engine(workerRules, 1<<20, 2)
	if err != nil {
		return err
	}
	var workers, apart [2]*flowWorker
	for i := range workers {
		own, err := engine(workerRules, 1<<19, 1)
		if err != nil {
			return err
		}
		if workers[i], err = newFlowWorker(one, i, i); err != nil {
			return err
		}
		if apart[i], err = newFlowWorker(own, 0, i); err != nil {
			return err
		}
		for _, l := range []*flowWorker{workers[i], apart[i]} {
			defer close(l.work)
			l.evaluate(4 * workerFlows)
		}
	}
	// a third of a millisecond, so that both cores are undisturbed for a round now and then
	const n = batch * 64
	run := func(best *float64, ls ...*flowWorker) {
		r := &round{packets: n}
		r.missing.Store(int32(len(ls)))
		for _, l := range ls {
			l.work <- r
		}
		for _, l := range ls {
			<-l.done
		}
		*best = max(*best, float64(n*len(ls))/r.end.Sub(r.start).Seconds()/1e6)
	}
	var single, both, alone, apartBoth float64
	for range rounds * 30 {
		for i := range workers {
			run(&single, workers[i])
			run(&alone, apart[i])
		}
		run(&both, workers[:]...)
		run(&apartBoth, apart[:]...)
	}
	for _, l := range workers {
		for _, v := range l.out[1:] {
			if v.State != firewall.StateHit {
				return fmt.Errorf("a flow was forgotten: %+v", v)
			}
		}
	}
	fmt.Printf("| 1 | %.1f | 1.00 |\n| 2 | %.1f | %.2f |\n"+
		"| 1, an engine of its own | %.1f | 1.00 |\n"+
		"| 2, each an engine of its own | %.1f | %.2f |\n\nBar: 1.8 times. "+
		"Two engines that share nothing: what these two cores can do.\n", single, both, both/single,
		alone, apartBoth, apartBoth/alone)
	checkTarget(both/single, 1.8)
	return nil
}
