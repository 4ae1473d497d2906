package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// contender is one implementation of the same work.
type contender struct {
	name string
	run  func() error // one operation: all datagrams are sent, received and checked
}

// result is the cost of one operation of a contender.
type result struct {
	// The lower quartile of the rounds: other processes and the runtime's background work only add
	// time.
	wall, cpu     float64 // ns
	allocs, bytes float64
}

// measure runs the contenders in turn, round after round, each for about slice long.
func measure(rounds int, slice time.Duration, cs []contender) ([]result, error) {
	ops := make([]int, len(cs))
	for i, c := range cs {
		start := time.Now()
		for ops[i] = 0; time.Since(start) < 2*slice; ops[i]++ {
			if err := c.run(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
		ops[i] = max(ops[i]/2, 1)
	}
	runtime.GC()
	type rows struct{ wall, cpu, allocs, bytes []float64 }
	seen := make([]rows, len(cs))
	out := make([]result, len(cs))
	for round := range rounds {
		for k := range cs {
			i := (k + round) % len(cs)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			cpu, start := cpuTime(), time.Now()
			for range ops[i] {
				if err := cs[i].run(); err != nil {
					return nil, fmt.Errorf("%s: %w", cs[i].name, err)
				}
			}
			wall := time.Since(start)
			cpu = cpuTime() - cpu
			runtime.ReadMemStats(&after)
			n := float64(ops[i])
			seen[i].wall = append(seen[i].wall, float64(wall)/n)
			seen[i].cpu = append(seen[i].cpu, float64(cpu)/n)
			seen[i].allocs = append(seen[i].allocs, float64(after.Mallocs-before.Mallocs)/n)
			seen[i].bytes = append(seen[i].bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
		}
	}
	for i, s := range seen {
		out[i] = result{quartile(s.wall), quartile(s.cpu), quartile(s.allocs), quartile(s.bytes)}
	}
	return out, nil
}

// quartile is the value that a quarter of the rounds are below.
func quartile(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/4]
}

// cpuTime is the CPU time of the process so far, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fmt.Fprintln(os.Stderr, "getrusage:", err)
		os.Exit(1)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
