// Package clock reads the clock that the engines use.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time of CLOCK_MONOTONIC.
func Now() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for this clock
	return time.Duration(t.Nano())
}

// Seconds returns a time in seconds with three digits.
func Seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1e3 }
