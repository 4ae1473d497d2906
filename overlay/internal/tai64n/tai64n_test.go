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
