package rule

import (
	"maps"
	"net/netip"
	"strconv"
	"time"
)

// MaxTimeout is the longest time that a member of a table may be given.
const MaxTimeout = 366 * 24 * time.Hour

const timeoutHint = "a number of seconds, or like 90s, 1h30m, 7d"

// timeoutUnits are those of nft, the longest first.
var timeoutUnits = []struct {
	name string
	unit time.Duration
}{
	{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute},
	{"s", time.Second}, {"ms", time.Millisecond},
}

// timeout reads the time after which a member ends.
func (p *parser) timeout() (time.Duration, error) {
	t, err := p.need("the time after timeout", timeoutHint)
	if err != nil {
		return 0, err
	}
	d, ok := parseTimeout(t.text)
	if !ok {
		return 0, p.fail(t, timeoutHint, "%s is not a time", quote(t.text))
	}
	if d <= 0 || d > MaxTimeout {
		return 0, p.fail(t, "without timeout the member stays", "a timeout is more than 0 and at "+
			"most %s", FormatTimeout(MaxTimeout))
	}
	return d, nil
}

// parseTimeout reads seconds, or numbers with units. A time that is too long for a Duration is
// longer than MaxTimeout.
func parseTimeout(text string) (d time.Duration, ok bool) {
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		text += "s"
	}
	for text != "" {
		digits := 0
		for digits < len(text) && text[digits] >= '0' && text[digits] <= '9' {
			digits++
		}
		letters := digits
		for letters < len(text) && text[letters] >= 'a' && text[letters] <= 'z' {
			letters++
		}
		n, err := strconv.ParseUint(text[:digits], 10, 31)
		unit := unitOf(text[digits:letters])
		if digits == 0 || unit == 0 {
			return 0, false
		}
		if err != nil || n > uint64(MaxTimeout/unit) || d > MaxTimeout {
			d, n = MaxTimeout, 1
		}
		d, text = d+time.Duration(n)*unit, text[letters:]
	}
	return d, true
}

func unitOf(name string) time.Duration {
	for _, u := range timeoutUnits {
		if u.name == name {
			return u.unit
		}
	}
	return 0
}

// FormatTimeout returns a time as a timeout is written, with milliseconds where there are any.
func FormatTimeout(d time.Duration) string {
	d = max(d, time.Millisecond).Round(time.Millisecond)
	var b []byte
	for _, u := range timeoutUnits[1:] {
		if n := d / u.unit; n > 0 {
			b = append(strconv.AppendInt(b, int64(n), 10), u.name...)
			d -= n * u.unit
		}
	}
	return string(b)
}

// addMember makes a member, and records when it ends if it has a timeout. A member that was there
// ends as the last command says.
func (s *Ruleset) addMember(table string, e TableEntry, timeout time.Duration) {
	s.Tables[table][e.Prefix] = e.Value
	if timeout > 0 {
		timeout += s.Now
	}
	s.SetDeadline(table, e.Prefix, timeout)
}

// SetDeadline records when a member ends; 0 for one that stays or is gone.
func (s *Ruleset) SetDeadline(table string, p netip.Prefix, at time.Duration) {
	ends := s.Deadlines[table]
	if at == 0 {
		if delete(ends, p); len(ends) == 0 {
			delete(s.Deadlines, table)
		}
		return
	}
	if s.Deadlines == nil {
		s.Deadlines = Deadlines{}
	}
	if ends == nil {
		ends = map[netip.Prefix]time.Duration{}
		s.Deadlines[table] = ends
	}
	ends[p] = at
}

// TimedMembers returns how many members end.
func (s *Ruleset) TimedMembers() (n int) {
	for _, ends := range s.Deadlines {
		n += len(ends)
	}
	return n
}

// SetNow sets the time. Members whose timeouts counted from the time before now have as much left
// as they had then.
func (s *Ruleset) SetNow(now time.Duration) {
	for _, ends := range s.Deadlines {
		for p := range ends {
			ends[p] += now - s.Now
		}
	}
	s.Now = now
}

// Expire sets the time and removes the members that end until then. It returns how many.
func (s *Ruleset) Expire(now time.Duration) (n int) {
	s.Now = now
	for table, ends := range s.Deadlines {
		for p, end := range ends {
			if end <= now {
				delete(s.Tables[table], p)
				delete(ends, p)
				n++
			}
		}
		if len(ends) == 0 {
			delete(s.Deadlines, table)
		}
	}
	return n
}

// Deadlines are when members of tables end, by table. Members that stay are not in it.
type Deadlines map[string]map[netip.Prefix]time.Duration

func (e Deadlines) clone() Deadlines {
	c := maps.Clone(e)
	for table, members := range c {
		c[table] = maps.Clone(members)
	}
	return c
}
