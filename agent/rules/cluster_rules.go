package rules

import (
	"sync"
	"time"

	"github.com/weirnet/weir/rule"
)

// Parse reads a rule file with the host's names, as ParseGiven does. It may hold no rule: it is a
// part of the rules.
func (m *Manager) Parse(name, text string) (*rule.Ruleset, error) {
	return rule.ParseFile(name, text, m.names)
}

// EnforceClusterRules puts rules of the host's cluster in force, in place of those before and of
// those on trial. With a trial longer than 0, the last rules that were not on trial come back when
// it ends without ConfirmClusterRules, and then ended is called. A full disk does not prevent that:
// saving is tried again. During a panic it returns an error: the cluster tries again.
func (m *Manager) EnforceClusterRules(next Version, try time.Duration, ended func()) error {
	if err := m.prepareLists(next.Set); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if m.panic != nil {
		return errPanic{}
	}
	before, last := m.rules, m.trial
	if last != nil {
		before = last.before
	}
	if err := m.enforceLocked(next); err != nil {
		return err
	}
	if last != nil {
		m.endTrialLocked()
	}
	if try > 0 {
		m.tryLocked(next.Source, before, try, ended)
		return nil
	}
	m.saveSharedLocked()
	return nil
}

// ConfirmClusterRules keeps rules of the cluster that are on trial.
func (m *Manager) ConfirmClusterRules() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if m.trial == nil {
		return errNoTrial
	}
	m.endTrialLocked()
	m.saveSharedLocked()
	return nil
}

// background is the saving of rules of the cluster.
type background struct {
	runs, again bool // guarded by Manager.mu
	group       sync.WaitGroup
}

// saveSharedLocked saves rules of the cluster without the lock: the host's copy of the store has
// them, and a disk that hangs must delay neither the next version nor status. What is saved is what
// a start without that copy enforces.
func (m *Manager) saveSharedLocked() {
	m.config.Problems.Solved(aboutFile) // which does not matter any more
	s := &m.background
	if s.again = true; !s.runs && !m.closed {
		s.runs = true
		s.group.Go(m.saveShared)
	}
}

func (m *Manager) saveShared() {
	s := &m.background
	for {
		m.mu.Lock()
		if !s.again {
			s.runs = false
			m.mu.Unlock()
			return
		}
		s.again = false
		m.store.setBase(ofCluster)
		text, tail := m.store.whole(m.lastingLocked())
		m.store.mu.Lock() // before the other one is free: changes of members come behind it
		m.mu.Unlock()
		w, err := m.store.prepareLocked(text, tail)
		if err == nil {
			err = w.commitLocked()
		}
		m.store.mu.Unlock()
		if err == nil {
			m.config.Problems.Solved(aboutSaving)
			continue
		}
		m.config.Problems.Set(aboutSaving, "the rules in force cannot be saved: "+err.Error(),
			"free space on the disk; Weir tries again")
		time.AfterFunc(saveEvery, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.saveSharedLocked()
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
