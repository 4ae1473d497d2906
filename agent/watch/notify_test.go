package watch

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestWatchdog(t *testing.T) {
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"", "", 0}, {"30000000", "", 10 * time.Second},
		{"30000000", strconv.Itoa(os.Getpid()), 10 * time.Second},
		{"30000000", "1", 0}, {"never", "", 0}, {"-5", "", 0},
	} {
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		if got := interval(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
