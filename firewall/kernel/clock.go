package kernel

import "golang.org/x/sys/unix"

// monotonic returns the time of the clock by which the programs judge, ns: CLOCK_MONOTONIC_COARSE.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &t); err != nil {
		return 0 // the kernel has had this clock since 2.6.32
	}
	return t.Nano()
}
