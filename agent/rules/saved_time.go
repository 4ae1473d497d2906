package rules

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/rule"
)

// Members of tables with a timeout are saved with what they have left. Saved rules with such
// members have a second line that says when that was,
//
//	# at boot 6a1b... time 86400123 wall 1790000000000
//
// so that a restart knows how long ago it was. It knows that by the clock of the boot. After
// another boot it is how long that one has lasted or what the time of day says, whichever is more
// (clock.Boot). So a time of day that is wrong ends members too early at worst. While there are
// such members, the time is noted every some minutes in a line behind the end, with the
// milliseconds since the second line. That is how much a member lives longer if the host crashes
// and its time of day is set back.
const stampMark = "# at "

// stampEvery is how often the time is noted.
const stampEvery = 5 * time.Minute

// stampLine returns the line of a moment; since is how long after the second line it is.
func stampLine(at clock.Stamp, since time.Duration) string {
	return fmt.Sprintf("%s%s after %d", stampMark, at, since.Milliseconds())
}

// parseStamp reads a line of a moment.
func parseStamp(line string) (at clock.Stamp, since time.Duration, ok bool) {
	text, ok := strings.CutPrefix(line, stampMark)
	if !ok {
		return at, 0, false
	}
	text, after, ok := strings.Cut(text, " after ")
	if !ok {
		return at, 0, false
	}
	var ms int64
	if _, err := fmt.Sscan(after, &ms); err != nil {
		return at, 0, false
	}
	at, err := clock.ParseStamp(text)
	return at, time.Duration(ms) * time.Millisecond, err == nil
}

// stampOf returns the moment of the second line of saved rules.
func stampOf(whole []byte) (at clock.Stamp, ok bool) {
	_, rest, _ := bytes.Cut(whole, []byte("\n"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	at, _, ok = parseStamp(string(line))
	return at, ok
}

// note is the last moment that the file knows.
type note struct {
	at    clock.Stamp
	since time.Duration // after the second line
}

// age returns how long ago the second line was written.
func (n *note) age(c clock.Boot) time.Duration { return n.since + c.Since(n.at) }

// resume has the timeouts of rules that were read count from when they were saved, and removes the
// members that have ended since.
func resume(set *rule.Ruleset, age time.Duration, now time.Duration) {
	set.SetNow(now - age)
	set.Expire(now)
}

// stamp notes the time in the file. It reports false where the file cannot be appended to: then it
// is to be written whole.
func (s *savedRules) stamp() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tail == nil || s.tail.full() || !s.tail.stamped {
		return false, nil
	}
	line := stampLine(s.clock.Stamp(), s.clock.Now()-s.tail.began)
	_, err := s.appendLocked([]byte(line))
	return true, err
}
