package testrand

import (
	"strings"
	"testing"
	"time"
)

func TestChoose(t *testing.T) {
	now := time.Unix(1, 2)
	one, err := choose("", "TestA", now)
	later, _ := choose("", "TestA", now.Add(time.Hour))
	other, _ := choose("", "TestB", now)
	if err != nil || one != later || one == other {
		t.Errorf("a test has seed %d, later %d, another test %d (%v)", one, later, other, err)
	}
	for value, want := range map[string]uint64{"random": 1_000_000_002, "17": 17,
		"18446744073709551615": 1<<64 - 1} {
		if got, err := choose(value, "TestA", now); err != nil || got != want {
			t.Errorf("%q: %d, %v, expected %d", value, got, err, want)
		}
	}
	for _, bad := range []string{"x", "-1", "18446744073709551616"} {
		if _, err := choose(bad, "TestA", now); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
