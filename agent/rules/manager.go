// Package rules holds the rules of a node: those in force, the trial of new ones, the saved ones,
// and the commands that change them.
package rules

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Config is what a Manager needs.
type Config struct {
	Settings Settings
	// File is the rule file that has to exist, "" for Default, which may be missing.
	File, Default string
	Saved         string // the file of the saved rules
	// Shared returns the rules of the host's cluster, as its disk has them; false if there are none
	// yet. It is nil on a host without a cluster. With one, only EnforceClusterRules and
	// ConfirmClusterRules change rules.
	Shared func() (Version, bool)
	// Unfollowed returns why the store of the host's cluster cannot be followed, although the host
	// has joined one; nil otherwise.
	Unfollowed func() error
	// Confirm puts a rule file at the start on trial for so long; 0 for no trial.
	Confirm time.Duration
	// LockDown reports whether a host whose rules cannot be used is locked down.
	LockDown func() bool
	Engine   firewall.Engine
	// Prepare is called with every Program before it is put in force.
	Prepare func(*program.Program) error
	// Loaded is called with every Program that was put in force, the one before it (nil at first)
	// and the rules.
	Loaded   func(old, new *program.Program, set *rule.Ruleset)
	Log      *slog.Logger
	Problems *problem.List
	Clock    clock.Boot // of members with a timeout
}

// Manager holds the rules in force. Only it changes them: one change at a time. Each is compiled
// before anything is changed, and is either in force and saved or not made at all.
type Manager struct {
	config Config
	store  *savedRules
	names  *rule.Names
	began  time.Time
	loads  atomic.Uint64             // rule sets put in force
	zeroed atomic.Pointer[time.Time] // when counters were last set to 0, nil for never

	mu      sync.Mutex       // its place in the lock order: agent/doc.go
	rules   Version          // guarded by mu
	program *program.Program // guarded by mu; what the engine runs
	cache   rule.Cache       // guarded by mu
	trial   *trial           // guarded by mu; nil when the rules are confirmed
	panic   *panicking       // guarded by mu; nil when there is none
	closed  bool             // guarded by mu
	expiry  expiry           // guarded by mu, but for its counters
	lists   lists            // of FollowLists, but for its counters

	background background
}

// New returns a Manager without rules.
func New(c Config) *Manager {
	names := rulefile.SystemNames()
	return &Manager{config: c, names: names, began: time.Now(),
		store: &savedRules{path: c.Saved, names: names, clock: c.Clock}}
}

// Version is a version of the rules. Once it is in force, only members of its tables change,
// under the Manager's lock.
type Version struct {
	Set    *rule.Ruleset
	Strict bool   // rule 65535 denies
	Source string // where the rules come from, for people
	// lockDown is why the host is locked down, of the rules that do it; nil for others. Rules of a
	// lock-down are never saved, and no command changes them: the next boot would take them for the
	// owner's.
	lockDown *problem.Problem
}

// compile makes the Program of the rules.
func (r Version) compile(c *rule.Cache) (*program.Program, error) {
	o := rule.CompileOptions{Default: op.ActionAllow}
	if r.Strict {
		o = rule.CompileOptions{Default: op.ActionDeny, Strict: true}
	}
	return c.Compile(r.Set, o)
}

// NamedTables returns the names of the tables that the rules ask about.
func (r Version) NamedTables() map[string]bool {
	named := map[string]bool{}
	for _, one := range r.Set.Active() {
		for _, t := range slices.Concat(one.Clauses()...) {
			if t.Op == op.CondSrcTable || t.Op == op.CondDstTable {
				named[t.Name] = true
			}
		}
	}
	return named
}

// members returns the members of a table as engines take them.
func (r Version) members(table string) []rule.TableEntry {
	if r.Set == nil {
		return nil
	}
	return r.Set.Entries(table)
}

// Ping takes the lock, for the watchdog.
func (m *Manager) Ping() {
	m.mu.Lock()
	m.mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
}

// View shows the rules in force and their Program to f, which must not keep them.
func (m *Manager) View(f func(Version, *program.Program)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.rules, m.program)
}

// change edits a copy of the rules and puts it in force.
func (m *Manager) change(edit func(*rule.Ruleset) error) error {
	return m.changeVersion(func(next *Version) error { return edit(next.Set) })
}

// changeVersion is change with what belongs to the rules.
func (m *Manager) changeVersion(edit func(*Version) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.changeableLocked(); err != nil {
		return err
	}
	next := m.rules
	next.Set = m.rules.Set.Clone()
	next.Set.Now = m.config.Clock.Now()
	if err := edit(&next); err != nil {
		return err
	}
	if err := rulefile.ReadLists(next.Set, m.rules.Set, rulefile.ReadList); err != nil {
		return err
	}
	return m.enforceSavedLocked(next)
}

// begin puts the first rules in force. They come from a file and may not fit on the disk: unsaved
// is the error because of which a restart would begin with other ones.
func (m *Manager) begin(first Version) (unsaved, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	panics, err := m.resumePanicLocked(first)
	if err == nil && !panics {
		err = m.enforceLocked(first)
	}
	if err != nil {
		return nil, err
	}
	if first.lockDown != nil {
		return nil, nil
	}
	return m.store.save(first), nil
}

// saveAgain saves the rules in force, after that has failed at the start. Once the Manager is
// closed it does nothing.
func (m *Manager) saveAgain() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	return m.store.save(m.lastingLocked())
}

// load replaces the rules. With a trial longer than 0 the previous rules come back when it ends
// unconfirmed, whether or not the client is still there. file, if not nil, is written when they are
// confirmed.
func (m *Manager) load(next Version, try time.Duration, file *newFile) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.replaceableLocked(); err != nil {
		return err
	}
	if try <= 0 {
		return m.enforceSavedLocked(next)
	}
	return m.enforceTrialLocked(next, try, file, "")
}

// loadFile is load for a new version of the owner's rule file: once they are confirmed, the rules
// saved from now on have it as their base.
func (m *Manager) loadFile(next Version, try time.Duration, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.replaceableLocked(); err != nil {
		return err
	}
	if try > 0 {
		if err := m.recordTrialLocked(m.rules, version); err != nil {
			return err
		}
		return m.enforceTrialLocked(next, try, nil, version)
	}
	before := m.store.setBase(version)
	if err := m.enforceSavedLocked(next); err != nil {
		m.store.setBase(before)
		return err
	}
	m.config.Problems.Solved(aboutFile)
	return nil
}

// enforceTrialLocked puts rules in force on trial.
func (m *Manager) enforceTrialLocked(next Version, try time.Duration, file *newFile,
	base string) error {
	before := m.rules
	if err := m.enforceLocked(next); err != nil {
		return err
	}
	m.beginTrialLocked(next.Source, before, try)
	m.trial.file, m.trial.base = file, base
	return nil
}

// errClosed is the error of every change after Close.
var errClosed = &api.Error{Message: "the node is stopping: rules cannot be changed",
	Advice: "weir up starts it again"}

// Close ends all changes: when it returns, nothing writes the saved rules or the copies of lists
// any more. What is under way ends first. A trial ends by going back to the rules before it. Where
// they cannot be in force, those on trial stay, and are not saved: the next start begins with the
// rules before.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	var err error
	if m.trial != nil {
		err = m.leaveTrialLocked()
	}
	m.mu.Unlock()
	m.background.group.Wait()
	m.endCopies()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.expiry.timer != nil {
		m.expiry.timer.Stop()
	}
	if lasting := m.lastingLocked(); lasting.Set != nil && lasting.lockDown == nil {
		_ = m.store.tidy(lasting) // the file is as good without
	}
	return err
}

// enforceSavedLocked puts rules in force and saves them, or neither. What may fail for want of
// space comes first: rules that were in force for a moment have cut what they did not let pass.
func (m *Manager) enforceSavedLocked(next Version) error {
	writing := make(chan *written, 1)
	go func() { writing <- m.store.write(next) }() // the disk has time while they are compiled
	p, err := next.compile(&m.cache)
	text := <-writing
	if err != nil {
		text.discard()
		return err
	}
	saved, err := text.prepare()
	if err != nil {
		return fmt.Errorf("nothing was changed: save the rules: %w", err)
	}
	before := m.rules
	if err := m.putLocked(next, p); err != nil {
		saved.Discard()
		return err
	}
	if err := saved.Commit(); err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: save the rules: %w", err),
			m.returnLocked(before))
	}
	m.config.Problems.Solved(aboutSaving)
	return nil
}

// enforceLocked compiles rules and hands them to the engine. An error leaves everything as it was.
func (m *Manager) enforceLocked(next Version) error {
	p, err := next.compile(&m.cache)
	if err != nil {
		return err
	}
	return m.putLocked(next, p)
}

// returnLocked is enforceLocked for rules that were in force before.
func (m *Manager) returnLocked(before Version) error {
	p, err := before.compile(&m.cache)
	if err != nil {
		return err
	}
	p.Returns = true
	return m.putLocked(before, p)
}

// putLocked hands compiled rules to the engine. An error leaves everything as it was.
func (m *Manager) putLocked(next Version, p *program.Program) error {
	if err := m.checkTimed(next.Set, 0); err != nil {
		return err
	}
	p.Returns = p.Returns || m.program == nil
	if err := m.config.Prepare(p); err != nil {
		return err
	}
	tables := changedTables(m.rules.Set, next.Set)
	if err := m.config.Engine.Replace(p, tables); err != nil {
		if m.program == nil {
			return err
		}
		for name := range tables {
			tables[name] = m.rules.members(name)
		}
		// The error may come from after the switch.
		before := *m.program
		before.Returns = true
		return errors.Join(err, m.config.Engine.Replace(&before, tables))
	}
	old := m.program
	m.rules, m.program = next, p
	m.loads.Add(1)
	m.followExpiryLocked()
	m.showLockDownLocked()
	if m.config.Loaded != nil {
		m.config.Loaded(old, p, next.Set)
	}
	return nil
}
