package main

import (
	"runtime"
	"slices"
	"time"
)

// contender runs its work n times.
type contender struct {
	name string
	run  func(n int)
}

// result is the measurement of a contender: the least of all rounds, and what it allocated.
type result struct {
	min    float64 // ns per operation
	allocs float64 // per operation
}

// compare runs contenders in turn, in an order that changes every round, each for about slice per
// round.
func compare(rounds int, slice time.Duration, cs ...contender) []result {
	n := make([]int, len(cs))
	times := make([][]float64, len(cs))
	out := make([]result, len(cs))
	for i, c := range cs {
		n[i] = 64
		for { // how many take about a slice
			start := time.Now()
			c.run(n[i])
			if d := time.Since(start); d > slice/2 {
				n[i] = max(64, int(float64(n[i])*float64(slice)/float64(d)))
				break
			}
			n[i] *= 2
		}
		out[i].allocs = allocated(n[i], c)
	}
	for round := range rounds {
		for k := range cs {
			i := (k + round) % len(cs)
			start := time.Now()
			cs[i].run(n[i])
			times[i] = append(times[i], float64(time.Since(start))/float64(n[i]))
		}
	}
	for i := range cs {
		out[i].min = slices.Min(times[i])
	}
	return out
}

// allocated returns how many allocations one operation makes, rounded down as the testing package
// does.
func allocated(n int, c contender) float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.run(n)
	runtime.ReadMemStats(&after)
	return float64(int(float64(after.Mallocs-before.Mallocs) / float64(n)))
}
