package rules

import (
	"sync"
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
		return errClosed
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
		b.endTrialLocked()
	}
	if try > 0 {
		b.tryLocked(next.Source, before, try, ended)
		return nil
	}
	b.saveSharedLocked()
	return nil
}

// Keep keeps rules of the cluster that are on trial.
func (b *Book) Keep() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if b.trial == nil {
		return errNoTrial
	}
	b.endTrialLocked()
	b.saveSharedLocked()
	return nil
}

// background is the saving of rules of the cluster.
type background struct {
	runs, again bool // guarded by Book.mu
	group       sync.WaitGroup
}

// saveSharedLocked saves rules of the cluster without the lock: the host's copy of the store has
// them, and a disk that hangs must delay neither the next version nor status. What is saved is what
// a start without that copy enforces.
func (b *Book) saveSharedLocked() {
	s := &b.background
	if s.again = true; !s.runs && !b.closed {
		s.runs = true
		s.group.Go(b.saveShared)
	}
}

func (b *Book) saveShared() {
	s := &b.background
	for {
		b.mu.Lock()
		if !s.again {
			s.runs = false
			b.mu.Unlock()
			return
		}
		s.again = false
		b.store.setBase(ofCluster)
		text, tail := b.store.whole(b.lastingLocked())
		b.store.mu.Lock() // before the other one is free: changes of members come behind it
		b.mu.Unlock()
		w, err := b.store.prepareLocked(text, tail)
		if err == nil {
			err = w.commitLocked()
		}
		b.store.mu.Unlock()
		if err == nil {
			b.config.Problems.Solved(aboutSaving)
			continue
		}
		b.config.Problems.Set(aboutSaving, "the rules in force cannot be saved: "+err.Error(),
			"free space on the disk; it is tried again")
		time.AfterFunc(saveEvery, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.saveSharedLocked()
		})
	}
}

// errShared refuses to change rules on this host alone.
type errShared struct{}

func (errShared) Error() string { return "the rules of this host come from its cluster" }

// Hint returns how to change them.
func (errShared) Hint() string {
	return "weir fw load FILE --on node:NAME changes those of one host, --on all those of every " +
		"host"
}
