package rules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weirnet/weir/rule"
)

// Members of tables come and go one by one, by the thousand, in tables of a million: the file is
// not rewritten for each. A change is a line behind the end of the whole part,
//
//	table guests add 10.0.0.0/8 0 # 8c7dd922ad47494f
//
// whose comment is a hash of the line and everything before it. It is on disk before the change is
// answered. A last line that does not fit was cut by a crash before its change was answered.

// savedTail is where the next change goes.
type savedTail struct {
	path        string
	whole, size int64  // bytes of the whole part, and with the changes
	last        []byte // hash of everything up to size
	torn        bool   // a cut line follows
	// whether the whole part says when it was written, and when that was on the clock of this boot:
	// timeouts in the file count from then
	stamped bool
	began   time.Duration
}

func newTail(path string, whole []byte) *savedTail {
	sum := sha256.Sum256(whole)
	return &savedTail{path: path, whole: int64(len(whole)), size: int64(len(whole)), last: sum[:]}
}

// tailLeast is how long a tail may always get. Above that it may be as long as the whole part.
const tailLeast = 64 << 10

func (t *savedTail) full() bool { return t.size-t.whole > max(t.whole, tailLeast) }

// hash returns what the next line ends with, and the hash behind it.
func (t *savedTail) hash(line []byte) (text string, next []byte) {
	sum := sha256.Sum256(append(bytes.Clone(t.last), line...))
	return hex.EncodeToString(sum[:8]), sum[:]
}

const tailMark = " # "

// read makes the changes in text, which follows the whole part. It returns the last moment that is
// noted there, nil for none.
func (t *savedTail) read(text []byte, set *rule.Ruleset, names *rule.Names) (last *note,
	err error) {
	for len(text) > 0 {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		command, mark, marked := bytes.Cut(line, []byte(tailMark))
		want, next := t.hash(command)
		if !ended || !marked || string(mark) != want {
			if len(rest) > 0 {
				return nil, errors.New("the file is damaged behind its end line")
			}
			t.torn = true
			return last, nil // the next change overwrites it
		}
		c, err := rule.ParseLine(string(command), names)
		if err != nil {
			return nil, err
		}
		if err := c.Apply(set); err != nil {
			return nil, err
		}
		if at, since, ok := parseStamp(string(command)); ok {
			last = &note{at, since}
		}
		t.size, t.last, text = t.size+int64(len(line))+1, next, rest
	}
	return last, nil
}

// append writes a change of a table behind the others. Discard takes it back.
func (s *savedRules) append(c *rule.Command, now time.Duration) (p pending, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.appendLocked(memberLine(c, now-s.tail.began))
}

func (s *savedRules) appendLocked(command []byte) (p pending, err error) {
	t := s.tail
	mark, next := t.hash(command)
	line := fmt.Appendf(nil, "%s%s%s\n", command, tailMark, mark)
	if err := writeAt(t.path, t.size, line); err != nil {
		s.tail = nil // the next change writes the whole file
		if writeAt(t.path, t.size, nil) == nil {
			s.tail = t
		}
		return nil, err
	}
	before := *t
	t.size, t.last = t.size+int64(len(line)), next
	return &savedLine{s, &before}, nil
}

// writeAt writes the end of a file, on disk, and cuts off what was there.
func writeAt(path string, at int64, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(at); err == nil {
		_, err = f.WriteAt(text, at)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// memberLine is the command in canonical words. Its timeouts count from a moment so long ago.
func memberLine(c *rule.Command, ago time.Duration) []byte {
	command := "delete"
	if c.Kind == rule.CommandTableAdd {
		command = "add"
	}
	b := fmt.Appendf(nil, "table %s %s", c.Table, command)
	for i, e := range c.Entries {
		if b = fmt.Appendf(b, " %s", e.Prefix); c.Kind == rule.CommandTableAdd {
			b = fmt.Appendf(b, " %d", e.Value)
		}
		if left := c.Timeout(i); left > 0 {
			b = fmt.Appendf(b, " timeout %s", rule.FormatTimeout(min(left+ago, rule.MaxTimeout)))
		}
	}
	return b
}

// savedLine is a change of a table that is in the file.
type savedLine struct {
	saved  *savedRules
	before *savedTail
}

func (l *savedLine) Commit() error { return nil }

// Discard takes the change out of the file. If that fails, the next one writes the whole file.
func (l *savedLine) Discard() {
	l.saved.mu.Lock()
	defer l.saved.mu.Unlock()
	if l.saved.tail = nil; writeAt(l.before.path, l.before.size, nil) == nil {
		l.saved.tail = l.before
	}
}

// prepareMembers saves a change of members, the last that was made in r.
func (s *savedRules) prepareMembers(c *rule.Command, r Version) (pending, error) {
	s.mu.Lock()
	whole := s.tail == nil || s.tail.full() || c.Timeouts != nil && !s.tail.stamped
	s.mu.Unlock()
	if whole {
		return s.prepare(r)
	}
	return s.append(c, r.Set.Now)
}

// tidy writes the changes behind the end into the whole part, if there are any, and the time that
// members have left.
func (s *savedRules) tidy(r Version) error {
	s.mu.Lock()
	tail := s.tail
	s.mu.Unlock()
	if tail == nil || tail.size == tail.whole && !tail.torn && r.Set.TimedMembers() == 0 {
		return nil
	}
	return s.save(r)
}
