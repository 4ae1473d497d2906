package clock

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Boot reads the clock of this boot, CLOCK_BOOTTIME: it counts while the machine sleeps, and
// setting the time of day does not touch it. The zero value is the machine's; the fields are for
// tests.
type Boot struct {
	ID   func() string        // of this boot
	Time func() time.Duration // since it began
	Wall func() time.Time     // the time of day, which may be wrong
	// Call calls a function later, once; the timer can stop that.
	Call func(time.Duration, func()) *time.Timer
}

// Now returns the time since the boot.
func (b Boot) Now() time.Duration {
	if b.Time != nil {
		return b.Time()
	}
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail for this clock
	return time.Duration(t.Nano())
}

// After calls a function when some time has passed. While the machine sleeps, none passes for it.
func (b Boot) After(wait time.Duration, f func()) *time.Timer {
	if b.Call != nil {
		return b.Call(wait, f)
	}
	return time.AfterFunc(wait, f)
}

func (b Boot) id() string {
	if b.ID != nil {
		return b.ID()
	}
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without one no stamp is of this boot
	return strings.TrimSpace(string(id))
}

func (b Boot) wall() time.Time {
	if b.Wall != nil {
		return b.Wall()
	}
	return time.Now()
}

// Stamp is a point in time that can be compared after a reboot.
type Stamp struct {
	Boot string
	Time time.Duration // since that boot
	Wall time.Time
}

// Stamp returns this moment.
func (b Boot) Stamp() Stamp {
	id := b.id()
	if id == "" {
		id = "-"
	}
	return Stamp{Boot: id, Time: b.Now(), Wall: b.wall()}
}

// Since returns how long ago a moment was, never less than what is certain. Within its boot that is
// exact. Later it is the time since this boot, or what the time of day says if that is more. A time
// of day that is wrong may make it too long, but not shorter than this machine has been up.
func (b Boot) Since(s Stamp) time.Duration {
	now := b.Now()
	if s.Boot != "-" && s.Boot == b.id() {
		return max(now-s.Time, 0)
	}
	return min(max(now, b.wall().Round(0).Sub(s.Wall.Round(0))), longest)
}

// longest is what Since returns at most, so that it can be added to other times.
const longest = 100 * 366 * 24 * time.Hour

// String returns the stamp as ParseStamp reads it.
func (s Stamp) String() string {
	return fmt.Sprintf("boot %s time %d wall %d", s.Boot, s.Time.Milliseconds(), s.Wall.UnixMilli())
}

// ParseStamp reads a stamp.
func ParseStamp(text string) (s Stamp, err error) {
	var ms, wall int64
	if _, err := fmt.Sscanf(text, "boot %s time %d wall %d", &s.Boot, &ms, &wall); err != nil {
		return s, fmt.Errorf("%q is not a time: %w", text, err)
	}
	s.Time, s.Wall = time.Duration(ms)*time.Millisecond, time.UnixMilli(wall)
	return s, nil
}
