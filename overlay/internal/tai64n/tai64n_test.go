package tai64n

import (
	"encoding/hex"
	"testing"
	"time"

	library "github.com/tailscale/wireguard-go/tai64n"
)

// TestTimestamps: they are those of the library while no one sets the clock, and rise with time.
func TestTimestamps(t *testing.T) {
	began := time.Unix(1234567890, 123456789)
	for running, want := range map[time.Duration]string{
		0:                      "40000000499602dc07000000",
		time.Second:            "40000000499602dd07000000",
		900 * time.Millisecond: "40000000499602dd01000000",
	} {
		if got := stamp(began, running); hex.EncodeToString(got[:]) != want {
			t.Errorf("after %v: %x, want %s", running, got, want)
		}
	}
	before := library.Now()
	time.Sleep(20 * time.Millisecond)
	now := Now()
	time.Sleep(20 * time.Millisecond)
	after := library.Now()
	if !now.After(Timestamp(before)) || !Timestamp(after).After(now) || now.After(now) {
		t.Errorf("%v, %v, %v", before, now, after)
	}
}

// TestContinue: timestamps rise from a later time, and never back to an earlier one.
func TestContinue(t *testing.T) {
	t.Cleanup(func() { origin.Store(nil) })
	last := Now()
	for _, ahead := range []time.Duration{-time.Hour, 366 * 24 * time.Hour, time.Hour,
		70 * 366 * 24 * time.Hour} {
		before, from := Now(), time.Now().Add(ahead)
		Continue(from)
		if at := Time(); at.Before(from) || ahead < 0 && at.After(time.Now().Add(time.Minute)) {
			t.Errorf("from %v on it is %v", from, at)
		}
		time.Sleep(20 * time.Millisecond)
		if now := Now(); !now.After(before) || !now.After(last) {
			t.Errorf("%v follows %v and %v", now, before, last)
		} else {
			last = now
		}
	}
}
