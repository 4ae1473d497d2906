package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// monotonic returns the time of the programs' clock, ns: CLOCK_MONOTONIC_COARSE.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &t); err != nil {
		return 0 // the kernel has had this clock since 2.6.32
	}
	return t.Nano()
}

// clockLag is how many ticks the programs may be behind that clock: the sweep corrects more
// (check_clock in sweep.h).
const clockLag = 2

// setClock writes how that clock follows from the count of jiffies: both are moved by the same
// ticks, whose length is the clock's resolution (kernel/time/posix-timers.c, posix_get_coarse_res).
func (e *Engine) setClock() error {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return fmt.Errorf("resolution of the clock: %w", err)
	}
	c := weirCall{Op: opClock, Clock: tick.Nano()}
	if err := e.call.ask(&c); err != nil {
		return err
	}
	e.config.Clock, e.config.Tick = c.Clock, tick.Nano()
	return e.writeConfigLocked()
}
