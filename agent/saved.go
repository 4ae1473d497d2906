package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/rule"
)

// The saved rules are a rule file like any other, with one line in front:
//
//	# weir saved rules: default deny, rule file 7d865e959b2466918c9863afca942d0f..., from "/etc/weir/rules"
//
// It says what rule 65535 does, which version of the owner's rule file the rules descend from, and where they came from.
const savedIntro = "# weir saved rules: "

// noFile stands for the version of a rule file that does not exist.
const noFile = "none"

// savedRules keeps the rules of the last change in a file, so that a restart begins with them.
type savedRules struct {
	path  string
	names *rule.Names

	mu   sync.Mutex
	file string // guarded by mu; version of the owner's rule file
}

// descend notes the version of the rule file that the rules come from, and returns the one before.
func (s *savedRules) descend(file string) (before string) {
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

// version names the content of a rule file.
func version(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// save writes the rules; the file is always whole.
func (s *savedRules) save(r ruleState) error {
	return writeWhole(s.path, s.format(r))
}

func (s *savedRules) format(r ruleState) []byte {
	var b bytes.Buffer
	action := "allow"
	if r.strict {
		action = "deny"
	}
	fmt.Fprintf(&b, "%sdefault %s, rule file %s, from %s\n", savedIntro, action, s.version(), strconv.Quote(r.source))
	for _, name := range slices.Sorted(maps.Keys(r.set.Tables)) {
		fmt.Fprintf(&b, "table %s create\n", name)
		members := r.set.Tables[name]
		for _, p := range slices.SortedFunc(maps.Keys(members), comparePrefixes) {
			fmt.Fprintf(&b, "table %s add %s %d\n", name, p, members[p])
		}
	}
	for _, one := range r.set.Rules {
		fmt.Fprintf(&b, "add %s\n", one)
	}
	for set := range 32 {
		if r.set.Disabled>>set&1 == 1 {
			fmt.Fprintf(&b, "set disable %d\n", set)
		}
	}
	return b.Bytes()
}

// read returns the saved rules and the version of the rule file that they descend from; fs.ErrNotExist when none were saved.
func (s *savedRules) read() (r ruleState, file string, err error) {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return r, "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	intro, ok := strings.CutPrefix(line, savedIntro)
	fields := strings.SplitN(intro, ", ", 3)
	if !ok || len(fields) != 3 {
		return r, "", fmt.Errorf("%s: the first line is not that of saved rules", s.path)
	}
	r.strict = fields[0] == "default deny"
	r.source, err = strconv.Unquote(strings.TrimPrefix(fields[2], "from "))
	if err != nil {
		return r, "", fmt.Errorf("%s: the first line is not that of saved rules", s.path)
	}
	if r.set, err = rule.ParseFile(s.path, string(text), s.names); err != nil {
		return r, "", err
	}
	return r, strings.TrimPrefix(fields[1], "rule file "), nil
}

// setAside keeps saved rules that are not used any more for whoever wants to look at them.
func (s *savedRules) setAside() error { return os.Rename(s.path, s.path+".old") }

// writeWhole replaces a file so that a crash leaves either the old or the new content.
func writeWhole(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// firstRules are the rules that a node starts with.
type firstRules struct {
	ruleState
	denied  bool  // the saved rules, which the last agent enforced, denied by default
	aside   bool  // saved rules were set aside: the rule file was edited since
	unsaved bool  // they are not to be saved
	problem error // the rule file cannot be used; the saved rules are in force instead
}

// first finds the rules to start with. The rule file is the owner's word; what was changed since by commands is in the saved rules,
// which descend from a version of the rule file. While the file stays as it was, the saved rules go on; once the owner edits it, the
// file is in force and the saved rules are set aside. A rule file with an error changes nothing: the saved rules go on, and without
// any the node does not start. needed says that the file has to exist.
func (s *savedRules) first(rules string, needed bool) (firstRules, error) {
	text, err := os.ReadFile(rules)
	given := err == nil
	if err != nil && (needed || !errors.Is(err, fs.ErrNotExist)) {
		return firstRules{}, err
	}
	now := noFile
	if given {
		now = version(text)
	}
	s.descend(now)
	saved, descends, err := s.read()
	kept := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !given {
		return firstRules{}, err
	}
	if kept && (!given || descends == now) {
		return firstRules{ruleState: saved, denied: saved.strict}, nil
	}
	if !given {
		return firstRules{ruleState: ruleState{set: new(rule.Ruleset), source: "none"}}, nil
	}
	set, _, err := offline.Parse(rules, string(text), s.names)
	if err != nil && kept {
		s.descend(descends)
		return firstRules{ruleState: saved, denied: saved.strict, problem: err}, nil
	}
	if err != nil {
		return firstRules{}, err
	}
	r := firstRules{ruleState: ruleState{set: set, strict: true, source: rules}, denied: saved.strict}
	if kept {
		r.aside = true
		err = s.setAside()
	}
	return r, err
}
