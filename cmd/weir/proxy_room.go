package main

import (
	"fmt"
	"syscall"
)

// roomFor returns how many of n clients the limit of open files leaves room for, after raising it as far as the system lets this
// process. A client takes two descriptors, its connection and the one that is made for it; spare is for everything else, pipes first.
func roomFor(n int) (int, error) {
	const spare = 256
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("proxy: limit of open files: %w", err)
	}
	want := uint64(2*n + spare)
	if limit.Cur < want {
		more := syscall.Rlimit{Cur: want, Max: max(limit.Max, want)}
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more) == nil { // only root may raise the upper limit
			limit = more
		}
	}
	if limit.Cur >= want {
		return n, nil
	}
	if limit.Cur < spare+2 {
		return 0, fmt.Errorf("proxy: %d open files are not enough to serve anybody", limit.Cur)
	}
	return int(limit.Cur-spare) / 2, nil
}
