package overlay

import (
	"runtime"
	"sync"
)

const (
	// bulk is how many bytes of packets a batch has at least that is divided among helpers: waking
	// one takes as long as sealing some kilobytes.
	bulk = 32 << 10
	// leastPart is how many packets a part has at least.
	leastPart = 8
	// mostHelpers is how many help at most, and parts how many parts a batch has then.
	mostHelpers = 7
	parts       = mostHelpers + 1
)

// divisible is work on n items that can be done in parts, at the same time. Each part has a number
// below parts, so that it can have memory of its own.
type divisible interface {
	do(part, from, to int)
}

// helpers are goroutines that do parts of the cipher's work of large batches, where there are CPUs
// enough. They do nothing else: the goroutine that has the batch waits for them, so packets stay in
// order without a lock or a queue. None is waited for that is busy elsewhere.
type helpers struct {
	jobs chan job
	// how many there are; 0 on a machine whose CPUs the readers of the socket and the interface
	// keep busy
	count int
}

type job struct {
	work           divisible
	part, from, to int
	done           *sync.WaitGroup
}

// newHelpers starts as many as the CPUs are good for, until end is closed.
func newHelpers(end <-chan struct{}) *helpers {
	return startHelpers(runtime.GOMAXPROCS(0)/2-1, end)
}

func startHelpers(count int, end <-chan struct{}) *helpers {
	h := &helpers{jobs: make(chan job), count: min(max(count, 0), mostHelpers)}
	for range h.count {
		go func() {
			for {
				select {
				case j := <-h.jobs:
					j.work.do(j.part, j.from, j.to)
					j.done.Done()
				case <-end:
					return
				}
			}
		}()
	}
	return h
}

// run does work on n items, which are so many bytes, and returns when all is done. done is the
// caller's memory.
func (h *helpers) run(work divisible, n, bytes int, done *sync.WaitGroup) {
	step := n
	if h != nil && h.count > 0 && bytes >= bulk {
		step = max(leastPart, (n+h.count)/(h.count+1))
	}
	for part, from := 1, step; from < n; part, from = part+1, from+step {
		to := min(from+step, n)
		done.Add(1)
		select {
		case h.jobs <- job{work, part, from, to, done}:
		default: // all are busy
			done.Done()
			work.do(part, from, to)
		}
	}
	work.do(0, 0, min(step, n))
	done.Wait()
}
