package rule

import (
	"net/netip"
	"testing"
	"time"
)

func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  time.Duration
		shown string
	}{
		{"90", 90 * time.Second, "1m30s"},
		{"1h30m", 90 * time.Minute, "1h30m"},
		{"2w", 14 * 24 * time.Hour, "14d"},
		{"1d2h3m4s5ms", 26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond,
			"1d2h3m4s5ms"},
		{"366d", MaxTimeout, "366d"},
	} {
		l, err := ParseLine("table banned add 192.0.2.7 timeout "+c.text, nil)
		if err != nil || l.Timeout(0) != c.want {
			t.Errorf("%s: %v, %v", c.text, l, err)
			continue
		}
		if got := FormatTimeout(c.want); got != c.shown {
			t.Errorf("%s: shown as %s, not %s", c.text, got, c.shown)
		}
	}
	for _, bad := range []string{"", "0", "0s", "-1", "h", "1x", "1h 1h", "1.5h", "367d",
		"99999999999999999999", "99999999999w99999999999w", "366d1ms", "1e3"} {
		if l, err := ParseLine("table banned add 192.0.2.7 timeout "+bad, nil); err == nil {
			t.Errorf("%q is taken for %v", bad, l.Timeouts)
		}
	}
}

// TestMembersThatEnd: which members end, and when, follows every command that changes the members,
// and the others stay.
func TestMembersThatEnd(t *testing.T) {
	s, err := ParseFile("f", `table a add 10.0.0.1 7 timeout 10s 10.0.0.2 10.0.0.3 timeout 20s
table a add 10.0.0.4 timeout 30s
table a add 10.0.0.4 5
table a add 10.0.0.5 timeout 1s
table a delete 10.0.0.5
table b add ::1 timeout 1s
table b flush
table c add ::1 timeout 1s
table c destroy
table d add ::1 timeout 1s
table d create or-flush
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := func(a string) netip.Prefix { return netip.MustParsePrefix(a + "/32") }
	if s.TimedMembers() != 2 || len(s.Deadlines) != 1 {
		t.Fatalf("ends %v", s.Deadlines)
	}
	s.SetNow(100 * time.Second)
	if s.Deadlines["a"][at("10.0.0.1")] != 110*time.Second ||
		s.Deadlines["a"][at("10.0.0.3")] != 120*time.Second {
		t.Errorf("ends %v", s.Deadlines)
	}
	c := s.Clone()
	if n := s.Expire(110 * time.Second); n != 1 || len(s.Tables["a"]) != 3 {
		t.Errorf("%d members ended, left %v", n, s.Tables)
	}
	if c.TimedMembers() != 2 || len(c.Tables["a"]) != 4 {
		t.Error("a copy follows the original")
	}
	if n := s.Expire(time.Hour); n != 1 || s.TimedMembers() != 0 || len(s.Deadlines) != 0 ||
		s.Tables["a"][at("10.0.0.4")] != 5 || len(s.Tables["a"]) != 2 {
		t.Errorf("%d members ended, left %v, ends %v", n, s.Tables, s.Deadlines)
	}
}
