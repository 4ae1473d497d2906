package main

import (
	"fmt"
	"syscall"
)

// clientLimit returns how many of n clients the limit of open files allows, after raising it as far
// as the system lets this process. A client takes two descriptors, its connection and the one to
// the server, and every fourth client one for a destination of a UDP association. spare is for
// everything else, mostly pipes.
func clientLimit(n int) (int, error) {
	const spare = 256
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("proxy: limit of open files: %w", err)
	}
	want := uint64(2*n+sessionsFor(n)) + spare
	if limit.Cur < want {
		more := syscall.Rlimit{Cur: want, Max: max(limit.Max, want)}
		// only root may raise the upper limit
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more) == nil {
			limit = more
		}
	}
	if limit.Cur >= want {
		return n, nil
	}
	if limit.Cur < spare+9 {
		return 0, advice{fmt.Errorf("proxy: %d open files are not enough for one client",
			limit.Cur), "raise the limit of open files: ulimit -n 1024"}
	}
	return int(limit.Cur-spare) / 9 * 4, nil
}

// sessionsFor returns how many destinations all UDP associations of n clients may have at the same
// time.
func sessionsFor(n int) int { return max(1, n/4) }
