package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/internal/configfile"
	"github.com/weirnet/weir/rule"
)

// Initial are the rules that a node starts with.
type Initial struct {
	Version
	Denied  bool  // the saved rules, which the last agent enforced, denied by default
	shared  bool  // the saved rules are in force, and come from a cluster
	aside   bool  // saved rules are set aside: the rule file was edited since
	problem error // the rule file cannot be used; the saved rules are in force instead
	// the rule file was on trial and not confirmed; the saved rules are in force instead
	unconfirmed bool
	// what a trial of them returns to; nil for rules that were in force before
	before *Version
	base   string           // version of the rule file that before is based on
	file   string           // version of the rule file in force, if before is not nil
	damage *problem.Problem // the saved rules cannot be used; the rule file is in force instead
}

// first finds the rules to start with. The rule file is the owner's; changes made since by commands
// are in the saved rules, which are based on a version of the rule file. While the file stays as it
// was, the saved rules are in force; once the owner edits it, the file is in force and the saved
// rules are set aside. A rule file that was not confirmed is not in force until it is edited, or on
// trial again. One with an error, or one that cannot be read, changes nothing: the saved rules are
// in force, and without any the node does not start. needed means that the file has to exist.
//
// Saved rules of a cluster are in force whatever the rule file holds. They stay those of a cluster
// while the host is a member; then an edited rule file counts again.
//
// Saved rules that are damaged, or of a later version, are never overwritten: they are kept under
// another name. Without a rule file to take instead, errUnusable is returned.
func (s *savedRules) first(rules string, needed bool) (Initial, error) {
	text, err := configfile.Read(rules)
	given := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.firstInPlaceOf(err)
	}
	if err != nil && needed {
		return Initial{}, err
	}
	now := noFile
	if given {
		now = fileVersion(text)
	}
	s.setBase(now)
	saved, recorded, err := s.read()
	kept := err == nil
	base, rejected, _ := strings.Cut(recorded, unconfirmed)
	var r Initial
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if r.damage = s.keepAside(err, rules); !given {
			return Initial{}, errUnusable{err, s.path, rules}
		}
	}
	if kept && (base == ofCluster || base == "") { // earlier agents wrote no base for a cluster's
		return Initial{Version: saved, Denied: saved.Strict, damage: s.tornAside(), shared: true},
			nil
	}
	if kept && (!given || base == now) {
		s.setBase(now + recorded[len(base):])
		return Initial{Version: saved, Denied: saved.Strict, damage: s.tornAside()}, nil
	}
	if !given {
		return Initial{Version: Version{Set: new(rule.Ruleset), Source: "none"}}, nil
	}
	if kept && rejected == now && !s.tries {
		s.setBase(recorded)
		return Initial{Version: saved, Denied: saved.Strict, damage: s.tornAside(),
			unconfirmed: true}, nil
	}
	set, err := rulefile.ParseGiven(rules, string(text), s.names)
	if err != nil && kept {
		s.setBase(recorded)
		return Initial{Version: saved, Denied: saved.Strict, problem: err}, nil
	}
	if err != nil {
		return Initial{}, err
	}
	set.SetNow(s.clock.Now())
	r.Version = Version{Set: set, Strict: true, Source: rules}
	r.Denied, r.aside = saved.Strict, kept
	r.before, r.base, r.file = &Version{Set: new(rule.Ruleset), Source: "none"}, noFile, now
	if kept {
		r.before, r.base = &saved, base
		s.retireBy(s.keepOld)
	}
	return r, nil
}

// firstInPlaceOf returns the saved rules in place of a rule file that cannot be read. They are no
// worse than in place of one with mistakes, of which a damaged disk may make either.
func (s *savedRules) firstInPlaceOf(unread error) (Initial, error) {
	saved, base, err := s.read()
	if err != nil {
		return Initial{}, unread
	}
	s.setBase(base)
	return Initial{Version: saved, Denied: saved.Strict, problem: unread,
		damage: s.tornAside()}, nil
}

// HadRules reports whether a node was ever given rules, by what it has saved in a file. What a node
// without any saves has no rule, and allows.
func HadRules(saved string) bool {
	aside, err := filepath.Glob(saved + ".*")
	if err != nil || len(aside) > 0 {
		return true
	}
	r, _, err := (&savedRules{path: saved, names: rulefile.SystemNames()}).read()
	if err == nil {
		return r.Strict || len(r.Set.Rules) > 0
	}
	return !errors.Is(err, fs.ErrNotExist) // what cannot be read may be rules
}

// errUnusable means that there are saved rules, but none that can be used, and no others: to start
// without rules would leave the host open.
type errUnusable struct {
	why          error
	saved, rules string
}

func (e errUnusable) Error() string {
	return "the rules of the last change cannot be used: " + e.why.Error()
}
func (e errUnusable) Unwrap() error { return e.why }

// Hint returns what to do.
func (e errUnusable) Hint() string {
	return fmt.Sprintf("write the rules to %s and start again; what can be read of the old ones "+
		"is in %s",
		e.rules, e.saved)
}

// keepAside keeps saved rules that cannot be used under another name, at once or, if that fails,
// before they are overwritten.
func (s *savedRules) keepAside(why error, rules string) *problem.Problem {
	keep := func() error {
		_, err := atomicfile.LinkAside(s.path, asideFor(why))
		return err
	}
	s.retireBy(keep)
	what := fmt.Sprintf("changes since %s was edited are lost: %v", rules, why)
	p := &problem.Problem{About: what, Problem: api.Problem{What: what}}
	if aside, err := atomicfile.LinkAside(s.path, asideFor(why)); err == nil {
		p.File = aside
		p.Advice = "what can be read of them is in " + aside + "; remove it when you have seen it"
	}
	return p
}

// tornAside keeps a copy of saved rules with a cut line behind their end, and returns the problem.
func (s *savedRules) tornAside() *problem.Problem {
	s.mu.Lock()
	torn := s.tail != nil && s.tail.torn
	s.mu.Unlock()
	if !torn {
		return nil
	}
	s.retireBy(func() error {
		_, err := atomicfile.LinkAside(s.path, "damaged")
		return err
	})
	what := s.path + ": the last line was cut: a change of a table, not yet answered, is lost"
	return &problem.Problem{About: what,
		Problem: api.Problem{What: what, Advice: "weir fw table list, and make the change again"}}
}

// keepOld keeps saved rules that are no longer used, for the owner to look at.
func (s *savedRules) keepOld() error {
	old := s.path + ".old"
	if there, err := os.Lstat(old); err == nil {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(there, now) {
			return nil
		}
	}
	if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(s.path, old)
}

// retireBy has the file kept aside, at once or, if that fails, before it is overwritten.
func (s *savedRules) retireBy(keep func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail, s.retire = nil, keep
	_ = keep() // tried again before the file is overwritten
}
