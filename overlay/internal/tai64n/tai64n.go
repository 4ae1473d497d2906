// Package tai64n makes the timestamps of handshakes (WireGuard, section 5.1). A node refuses an
// initiation whose timestamp is not later than the last one of that peer. The library takes the
// time of day. So a host whose clock is set back begins no session until the clock has caught up,
// and packets for its peers wait as long. These timestamps rise while the program runs, whatever
// happens to the time of day.
package tai64n

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// TimestampSize is the length of a timestamp in bytes.
const TimestampSize = 12

// Timestamp is one of TAI64N: seconds since 1970 with an offset, and nanoseconds.
type Timestamp [TimestampSize]byte

const (
	offset = 0x400000000000000a
	// unseen are the bits of the nanoseconds that are not shown: they tell about the load.
	unseen = 1<<24 - 1
)

// began is when the program began: its time of day, and a reading of the clock that no one sets.
var began = time.Now()

// origin is the time of day that counts for began; nil: that of began itself.
var origin atomic.Pointer[time.Time]

// Now returns the timestamp of this moment: the time of day when the program began, or what
// Continue has made of it, and how long it has run.
func Now() Timestamp { return stamp(beginning(), time.Since(began)) }

// Time returns the time that the timestamp of this moment has.
func Time() time.Time { return beginning().Add(time.Since(began)) }

func beginning() time.Time {
	if t := origin.Load(); t != nil {
		return *t
	}
	return began
}

// Continue has timestamps rise from a time, unless they are later already.
func Continue(from time.Time) {
	for {
		before := origin.Load()
		if !from.After(Time()) {
			return
		}
		next := from.Add(-time.Since(began)).Round(0)
		if origin.CompareAndSwap(before, &next) {
			return
		}
	}
}

func stamp(began time.Time, running time.Duration) (t Timestamp) {
	at := began.Add(running)
	binary.BigEndian.PutUint64(t[:], offset+uint64(at.Unix()))
	binary.BigEndian.PutUint32(t[8:], uint32(at.Nanosecond())&^unseen)
	return t
}

// After reports whether a timestamp is later than another one.
func (t Timestamp) After(other Timestamp) bool { return bytes.Compare(t[:], other[:]) > 0 }

func (t Timestamp) String() string {
	return time.Unix(int64(binary.BigEndian.Uint64(t[:])-offset),
		int64(binary.BigEndian.Uint32(t[8:]))).UTC().Format(time.RFC3339Nano)
}
