// Package clock reads the clock of the engines.
package clock

import "golang.org/x/sys/unix"

// Now returns nanoseconds of CLOCK_MONOTONIC.
func Now() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for this clock
	return t.Nano()
}

// Seconds turns nanoseconds into seconds with three digits.
func Seconds(ns int64) float64 { return float64(ns/1e6) / 1e3 }
