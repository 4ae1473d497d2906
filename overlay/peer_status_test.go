package overlay

import (
	"testing"
	"time"
)

// TestInSession: keys serve for three minutes. A clock that was set back makes no dead session a
// live one, and a small step ends none.
func TestInSession(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		handshake time.Time
		want      bool
	}{{now, true}, {now.Add(-179 * time.Second), true}, {now.Add(-180 * time.Second), false},
		{now.Add(time.Second), true}, {now.Add(5 * time.Hour), false}, {time.Time{}, false}} {
		if got := InSession(c.handshake, now); got != c.want {
			t.Errorf("a handshake at %v, now %v: %v", c.handshake, now, got)
		}
	}
}
