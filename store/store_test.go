package store

import (
	"testing"
	"time"
)

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		name, key string
		want      bool
	}{
		{"a", "a", true}, {"a", "a/b", false}, {"a", "ab", false}, {"a/", "a/b", true},
		{"a/", "a/b/c", true}, {"a/", "a/", true}, {"a/", "a", false}, {"a/", "ab", false},
		{"a/", "a0", false}, {"", "a", false}, {"/", "/a", true},
	} {
		if got := Covers(c.name, c.key); got != c.want {
			t.Errorf("%q covers %q: %v", c.name, c.key, got)
		}
	}
}

// TestPause: pauses grow from a fifth of a second to half a minute, and are spread over all of the
// time.
func TestPause(t *testing.T) {
	for _, c := range []struct {
		failures int
		most     time.Duration
	}{
		{0, 200 * time.Millisecond}, {1, 200 * time.Millisecond}, {2, 400 * time.Millisecond},
		{8, 25600 * time.Millisecond}, {9, 30 * time.Second}, {1 << 40, 30 * time.Second},
	} {
		if p := Pause(c.failures, 0); p != 0 {
			t.Errorf("%d failures: at least %v", c.failures, p)
		}
		if p := Pause(c.failures, 0.5); p != c.most/2 {
			t.Errorf("%d failures: %v in the middle, expected %v", c.failures, p, c.most/2)
		}
		if p := Pause(c.failures, 0.999999); p > c.most || p < c.most*99/100 {
			t.Errorf("%d failures: at most %v, expected %v", c.failures, p, c.most)
		}
	}
}
