// Package rules holds the rules of a node: those in force, the trial of new ones, the saved ones,
// and the commands that change them.
package rules

import (
	"errors"
	"fmt"
	"log/slog"
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

// Config is what a Book needs.
type Config struct {
	Settings Settings
	// File is the rule file that has to exist, "" for Default, which may be missing.
	File, Default string
	Saved         string // the file of the saved rules
	// Shared returns the rules of the host's cluster, as its disk has them; false if there are none
	// yet. It is nil on a host without a cluster. With one, only Enforce and Keep change rules.
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

// Book holds the rules in force. Only it changes them: one change at a time. Each is compiled
// before anything is changed, and is either in force and saved or not made at all.
type Book struct {
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

// New returns a Book without rules.
func New(c Config) *Book {
	names := rulefile.SystemNames()
	return &Book{config: c, names: names, began: time.Now(),
		store: &savedRules{path: c.Saved, names: names, clock: c.Clock}}
}

// Version is a version of the rules. Once it is in force, only members of its tables change,
// under the Book's lock.
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

// members returns the members of a table as engines take them.
func (r Version) members(table string) []rule.TableEntry {
	if r.Set == nil {
		return nil
	}
	return r.Set.Entries(table)
}

// Ping takes the lock, for the watchdog.
func (b *Book) Ping() {
	b.mu.Lock()
	b.mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
}

// View shows the rules in force and their Program to f, which must not keep them.
func (b *Book) View(f func(Version, *program.Program)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.rules, b.program)
}

// change edits a copy of the rules and puts it in force.
func (b *Book) change(edit func(*rule.Ruleset) error) error {
	return b.changeVersion(func(next *Version) error { return edit(next.Set) })
}

// changeVersion is change with what belongs to the rules.
func (b *Book) changeVersion(edit func(*Version) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.changeableLocked(); err != nil {
		return err
	}
	next := b.rules
	next.Set = b.rules.Set.Clone()
	next.Set.Now = b.config.Clock.Now()
	if err := edit(&next); err != nil {
		return err
	}
	if err := rulefile.ReadLists(next.Set, b.rules.Set, rulefile.ReadList); err != nil {
		return err
	}
	return b.enforceSavedLocked(next)
}

// begin puts the first rules in force. They come from a file and may not fit on the disk: unsaved
// is the error because of which a restart would begin with other ones.
func (b *Book) begin(first Version) (unsaved, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	panics, err := b.resumePanicLocked(first)
	if err == nil && !panics {
		err = b.enforceLocked(first)
	}
	if err != nil {
		return nil, err
	}
	if first.lockDown != nil {
		return nil, nil
	}
	return b.store.save(first), nil
}

// saveAgain saves the rules in force, after that has failed at the start. Once the Book is
// closed it does nothing.
func (b *Book) saveAgain() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	return b.store.save(b.lastingLocked())
}

// load replaces the rules. With a trial longer than 0 the rules before come back when it ends
// unconfirmed, whether or not the client is still there. file, if not nil, is written when they are
// confirmed.
func (b *Book) load(next Version, try time.Duration, file *newFile) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.replaceableLocked(); err != nil {
		return err
	}
	if try <= 0 {
		return b.enforceSavedLocked(next)
	}
	before := b.rules
	if err := b.enforceLocked(next); err != nil {
		return err
	}
	b.beginTrialLocked(next.Source, before, try)
	b.trial.file = file
	return nil
}

// loadFile is load for a new version of the owner's rule file: the rules saved from now on have it
// as their base.
func (b *Book) loadFile(next Version, version string) error {
	before := b.store.setBase(version)
	err := b.load(next, 0, nil)
	if err != nil {
		b.store.setBase(before)
	}
	return err
}

// errClosed is the error of every change after Close.
var errClosed = &api.Error{Message: "the node is going down: no rule is changed any more",
	Advice: "weir up starts it again"}

// Close ends all changes: when it returns, nothing writes the saved rules or the copies of lists
// any more. What is under way ends first. A trial ends by going back to the rules before it. Where
// they cannot be in force, those on trial stay, and are not saved: the next start begins with the
// rules before.
func (b *Book) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	var err error
	if b.trial != nil {
		err = b.leaveTrialLocked()
	}
	b.mu.Unlock()
	b.background.group.Wait()
	b.endCopies()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expiry.timer != nil {
		b.expiry.timer.Stop()
	}
	if lasting := b.lastingLocked(); lasting.Set != nil && lasting.lockDown == nil {
		_ = b.store.tidy(lasting) // the file is as good without
	}
	return err
}

// enforceSavedLocked puts rules in force and saves them, or neither. What may fail for want of
// space comes first: rules that were in force for a moment have cut what they did not let pass.
func (b *Book) enforceSavedLocked(next Version) error {
	writing := make(chan *written, 1)
	go func() { writing <- b.store.write(next) }() // the disk has time while they are compiled
	p, err := next.compile(&b.cache)
	text := <-writing
	if err != nil {
		text.discard()
		return err
	}
	saved, err := text.prepare()
	if err != nil {
		return fmt.Errorf("nothing was changed: save the rules: %w", err)
	}
	before := b.rules
	if err := b.putLocked(next, p); err != nil {
		saved.Discard()
		return err
	}
	if err := saved.Commit(); err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: save the rules: %w", err),
			b.returnLocked(before))
	}
	b.config.Problems.Solved(aboutSaving)
	return nil
}

// enforceLocked compiles rules and hands them to the engine. An error leaves everything as it was.
func (b *Book) enforceLocked(next Version) error {
	p, err := next.compile(&b.cache)
	if err != nil {
		return err
	}
	return b.putLocked(next, p)
}

// returnLocked is enforceLocked for rules that were in force before.
func (b *Book) returnLocked(before Version) error {
	p, err := before.compile(&b.cache)
	if err != nil {
		return err
	}
	p.Returns = true
	return b.putLocked(before, p)
}

// putLocked hands compiled rules to the engine. An error leaves everything as it was.
func (b *Book) putLocked(next Version, p *program.Program) error {
	if err := b.checkTimed(next.Set, 0); err != nil {
		return err
	}
	p.Returns = p.Returns || b.program == nil
	if err := b.config.Prepare(p); err != nil {
		return err
	}
	tables := changedTables(b.rules.Set, next.Set)
	if err := b.config.Engine.Replace(p, tables); err != nil {
		if b.program == nil {
			return err
		}
		for name := range tables {
			tables[name] = b.rules.members(name)
		}
		// The error may come from after the switch.
		before := *b.program
		before.Returns = true
		return errors.Join(err, b.config.Engine.Replace(&before, tables))
	}
	old := b.program
	b.rules, b.program = next, p
	b.loads.Add(1)
	b.followExpiryLocked()
	b.showLockDownLocked()
	if b.config.Loaded != nil {
		b.config.Loaded(old, p, next.Set)
	}
	return nil
}
