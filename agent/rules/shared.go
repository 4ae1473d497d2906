package rules

import (
	"errors"
	"time"

	"github.com/weirnet/weir/rule"
)

// Parse reads a rule file with the host's names, as ParseGiven does. It may hold no rule: it is a
// part of the rules.
func (b *Book) Parse(name, text string) (*rule.Ruleset, error) {
	return rule.ParseFile(name, text, b.names)
}

// Enforce puts rules of the host's cluster in force, in place of those before and of those on
// trial. With a trial longer than 0, the last rules that were not on trial come back when it ends
// without Keep, and then ended is called. A full disk does not prevent that: saving is tried again.
// During a panic it returns an error: the cluster tries again.
func (b *Book) Enforce(next Version, try time.Duration, ended func()) error {
	if err := b.prepareLists(next.Set); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errors.New("the node goes down")
	}
	if b.panic != nil {
		return errPanic{}
	}
	before, last := b.rules, b.trial
	if last != nil {
		before = last.before
	}
	if err := b.enforceLocked(next); err != nil {
		return err
	}
	if last != nil {
		last.timer.Stop()
		b.trial = nil
	}
	if try > 0 {
		b.tryLocked(next.Source, before, try, ended)
		return nil
	}
	b.config.Problems.Solved(aboutLockDown)
	b.unsaved(b.store.save(next))
	return nil
}

// Keep keeps rules of the cluster that are on trial.
func (b *Book) Keep() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trial == nil {
		return errNoTrial
	}
	b.trial.timer.Stop()
	b.trial = nil
	b.unsaved(b.store.save(b.rules))
	return nil
}

// errShared refuses to change rules on this host alone.
type errShared struct{}

func (errShared) Error() string { return "the rules of this host come from its cluster" }

// Hint returns how to change them.
func (errShared) Hint() string {
	return "weir fw load FILE --on node:NAME changes those of one host, --on all those of every " +
		"host"
}
