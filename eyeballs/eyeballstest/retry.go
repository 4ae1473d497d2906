package eyeballstest

import (
	"testing"
	"time"
)

// Retry repeats a test that depends on real time until it passes. A machine that stalls at the
// wrong moment sometimes makes a correct dialer or resolver late; a faulty one is late every time.
func Retry(t testing.TB, play func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if err = play(); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error(err)
}
