package rules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/rule"
)

// The saved rules are a rule file like any other, with a line in front and one at the end:
//
//	# weir saved rules 2: default deny, rule file 7d865e959b246691..., from "/etc/weir/rules"
//	...
//	# end of 17 lines, sha256 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
//
// The first says what rule 65535 does, which version of the owner's rule file the rules are based
// on, and where they came from, the other that nothing is missing. Changes of tables made since
// stand behind it (saved_append.go). The first version had no end and no tail.
const (
	savedIntro   = "# weir saved rules"
	savedVersion = 2
	savedEnd     = "# end of "
)

// errNewer means that a later version of Weir wrote a file.
type errNewer struct {
	file          string
	version, most int
}

func (e errNewer) Error() string {
	return fmt.Sprintf("%s is of a later Weir: its version is %d, this Weir knows %d", e.file,
		e.version, e.most)
}

// asideFor is the part of the name under which an unusable file is kept.
func asideFor(err error) string {
	if newer := (errNewer{}); errors.As(err, &newer) {
		return "newer"
	}
	return "damaged"
}

// What stands for the version of a rule file.
const (
	noFile = "none" // there was none
	// ofCluster is that of saved rules that come from a cluster: they are newer than the rule file,
	// whatever it holds.
	ofCluster = "cluster"
	// unconfirmed stands between a base and the version of a rule file that was on trial after it.
	// The trial is recorded before it begins (recordTrialLocked): no start without one takes that
	// version, whether the previous rules came back or the agent died.
	unconfirmed = " unconfirmed "
)

// savedRules stores the rules of the last change in a file, so that a restart begins with them.
type savedRules struct {
	path  string
	names *rule.Names
	clock clock.Boot

	tries bool // an edited rule file is put on trial at the start

	mu   sync.Mutex // its place in the lock order: agent/doc.go
	file string     // guarded by mu; version of the owner's rule file
	// retire keeps aside what is in the file and must not be overwritten without that; nil: nothing
	// is.
	retire func() error // guarded by mu
	tail   *savedTail   // guarded by mu; nil: the file cannot be appended to
}

// setBase sets the version of the rule file that the rules are based on, and returns the one
// before.
func (s *savedRules) setBase(file string) (before string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.file = s.file, file
	return before
}

func (s *savedRules) version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

// fileVersion names the content of a rule file.
func fileVersion(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// save writes the rules; the file is always whole.
func (s *savedRules) save(r Version) error {
	p, err := s.prepare(r)
	if err != nil {
		return err
	}
	return p.Commit()
}

// prepare writes the rules beside the file: what may fail for want of space is done when it
// returns.
func (s *savedRules) prepare(r Version) (pending, error) { return s.write(r).prepare() }

func (s *savedRules) retireLocked() error {
	if s.retire == nil {
		return nil
	}
	return s.retire()
}

// whole returns the content of a new file, and how it is continued.
func (s *savedRules) whole(r Version) ([]byte, *savedTail) {
	text := s.format(r)
	tail := newTail(s.path, text)
	tail.stamped, tail.began = r.Set.TimedMembers() > 0, r.Set.Now
	return text, tail
}

func (s *savedRules) prepareLocked(text []byte, tail *savedTail) (*savedWhole, error) {
	if err := s.retireLocked(); err != nil {
		return nil, err
	}
	p, err := atomicfile.Prepare(s.path, text)
	if err != nil {
		return nil, err
	}
	return &savedWhole{p, s, tail}, nil
}

// pending is a change of the saved rules that is on disk, and is made or forgotten.
type pending interface {
	Commit() error
	Discard()
}

// savedWhole is a whole new file.
type savedWhole struct {
	*atomicfile.Pending
	saved *savedRules
	tail  *savedTail
}

func (w *savedWhole) Commit() error {
	w.saved.mu.Lock()
	defer w.saved.mu.Unlock()
	return w.commitLocked()
}

func (w *savedWhole) commitLocked() error {
	w.saved.tail = nil // whichever file is there after an error
	if err := w.Pending.Commit(); err != nil {
		return err
	}
	w.saved.tail, w.saved.retire = w.tail, nil
	return nil
}

func (s *savedRules) format(r Version) []byte {
	var b bytes.Buffer
	b.Grow(1024 + 64*len(r.Set.Rules)) // or it would be copied again and again
	action := "allow"
	if r.Strict {
		action = "deny"
	}
	fmt.Fprintf(&b, "%s %d: default %s, rule file %s, from %s\n", savedIntro, savedVersion, action,
		s.version(), strconv.Quote(r.Source))
	if r.Set.TimedMembers() > 0 {
		r.Set.Now = s.clock.Now()
		fmt.Fprintln(&b, stampLine(s.clock.Stamp(), 0))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Set.Tables)) {
		fmt.Fprintf(&b, "table %s create", name)
		if l := r.Set.Lists[name]; l != nil {
			fmt.Fprintf(&b, " file %s", l.File)
		}
		b.WriteString("\n")
		members := r.Set.Tables[name]
		for _, p := range slices.SortedFunc(maps.Keys(members), netip.Prefix.Compare) {
			formatMember(&b, r.Set, name, p, members[p])
		}
	}
	for _, number := range slices.Sorted(maps.Keys(r.Set.Pipes)) {
		fmt.Fprintf(&b, "pipe %d config %s\n", number, r.Set.Pipes[number])
	}
	for _, number := range slices.Sorted(maps.Keys(r.Set.NATs)) {
		fmt.Fprintf(&b, "nat %d config %s\n", number, rule.FormatNAT(r.Set.NATs[number]))
	}
	if r.Set.ManyPass {
		b.WriteString("disable one_pass\n")
	}
	for _, one := range r.Set.Rules {
		b.WriteString("add ")
		b.Write(one.AppendText(b.AvailableBuffer()))
		b.WriteByte('\n')
	}
	for set := range 32 {
		if r.Set.Disabled>>set&1 == 1 {
			fmt.Fprintf(&b, "set disable %d\n", set)
		}
	}
	fmt.Fprintf(&b, "%s%d lines, sha256 %x\n", savedEnd, bytes.Count(b.Bytes(), []byte("\n")),
		sha256.Sum256(b.Bytes()))
	return b.Bytes()
}

// formatMember writes a member with what it has left, or nothing if that is nothing.
func formatMember(b *bytes.Buffer, set *rule.Ruleset, table string, p netip.Prefix, value uint32) {
	end, timed := set.Deadlines[table][p]
	switch {
	case !timed:
		fmt.Fprintf(b, "table %s add %s %d\n", table, p, value)
	case end > set.Now:
		fmt.Fprintf(b, "table %s add %s %d timeout %s\n", table, p, value,
			rule.FormatTimeout(end-set.Now))
	}
}

// read returns the saved rules and the version of the rule file that they are based on;
// fs.ErrNotExist when none were saved.
func (s *savedRules) read() (r Version, file string, err error) {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return r, "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	at, words, ok := strings.Cut(strings.TrimPrefix(line, savedIntro), ": ")
	fields := strings.SplitN(words, ", ", 3)
	format, err := strconv.Atoi(strings.TrimPrefix(at, " "))
	if at == "" && strings.HasPrefix(line, savedIntro) {
		format, err = 1, nil
	}
	if ok && err == nil && format > savedVersion {
		return r, "", errNewer{s.path, format, savedVersion}
	}
	if !ok || err != nil || !strings.HasPrefix(line, savedIntro) || len(fields) != 3 {
		return r, "", fmt.Errorf("%s: the first line is not that of saved rules", s.path)
	}
	r.Strict = fields[0] == "default deny"
	r.Source, err = strconv.Unquote(strings.TrimPrefix(fields[2], "from "))
	if err != nil {
		return r, "", fmt.Errorf("%s: the first line is not that of saved rules", s.path)
	}
	whole := text
	if format > 1 {
		if whole, err = wholeOf(text); err != nil {
			return r, "", fmt.Errorf("%s: %w", s.path, err)
		}
	}
	if r.Set, err = rule.ParseFile(s.path, string(whole), s.names); err != nil {
		return r, "", err
	}
	if format > 1 {
		err = s.readTail(&r, whole, text[len(whole):])
	}
	return r, strings.TrimPrefix(fields[1], "rule file "), err
}

// readTail makes the changes that stand behind the whole part, and remembers where the next one
// goes.
func (s *savedRules) readTail(r *Version, whole, rest []byte) error {
	tail := newTail(s.path, whole)
	last, err := tail.read(rest, r.Set, s.names)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	now, age := s.clock.Now(), time.Duration(0)
	at, stamped := stampOf(whole)
	if stamped && last == nil {
		last = &note{at: at}
	}
	if last != nil {
		age = last.age(s.clock)
	}
	tail.stamped, tail.began = stamped, now-age
	resume(r.Set, age, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = tail
	return nil
}

// wholeOf returns the part of saved rules up to their end line, which has to fit.
func wholeOf(text []byte) ([]byte, error) {
	at := bytes.LastIndex(text, []byte("\n"+savedEnd)) + 1
	if at == 0 {
		return nil, errors.New("the file is cut: its last line is missing")
	}
	whole := text[:at]
	want := fmt.Sprintf("%s%d lines, sha256 %x\n", savedEnd, bytes.Count(whole, []byte("\n")),
		sha256.Sum256(whole))
	if !bytes.HasPrefix(text[at:], []byte(want)) {
		return nil, errors.New("the file is damaged: its last line does not match what is " +
			"before it")
	}
	return text[:at+len(want)], nil
}
