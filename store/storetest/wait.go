package storetest

import (
	"testing"
	"time"
)

// Eventually waits until something is so. It fails the test when that takes minutes.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	const most = 5 * time.Minute // on however busy a machine
	for end := time.Now().Add(most); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", most, what)
		}
	}
}
