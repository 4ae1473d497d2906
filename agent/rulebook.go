package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// rulebook holds the rules in force. Only it changes them: one change at a time, each compiled
// before anything is touched, and each either wholly in force and saved or not made at all.
type rulebook struct {
	engine firewall.Engine
	store  *savedRules
	names  *rule.Names
	// prepare is called with every Program before it is put in force.
	prepare func(*rule.Program) error
	// loaded is called with every Program that was put in force, the one before it (nil at first)
	// and the rules.
	loaded func(old, new *rule.Program, set *rule.Ruleset)
	// failed is called with errors that no client waits for.
	failed func(error)
	// saved, if set, is called when all of the rules in force were saved.
	saved func()

	mu      sync.Mutex    // its place in the lock order: doc.go
	rules   ruleState     // guarded by mu
	program *rule.Program // guarded by mu; what the engine runs
	trial   *trial        // guarded by mu; nil when the rules are confirmed
	closed  bool          // guarded by mu
}

// ruleState is a version of the rules. Once it is in force, only members of its tables change,
// under the rulebook's lock.
type ruleState struct {
	set    *rule.Ruleset
	strict bool   // rule 65535 denies
	source string // where the rules come from, for people
}

// compile makes the Program of the rules.
func (r ruleState) compile() (*rule.Program, error) {
	o := rule.CompileOptions{Default: rule.OpAllow}
	if r.strict {
		o = rule.CompileOptions{Default: rule.OpDeny, Strict: true}
	}
	return rule.Compile(r.set, o)
}

// members returns the members of a table as engines take them.
func (r ruleState) members(table string) []firewall.TableEntry {
	if r.set == nil {
		return nil
	}
	return rulefile.Entries(r.set.Tables[table])
}

// trial is a rule set that is rolled back unless it is confirmed.
type trial struct {
	name   string
	before ruleState
	ends   time.Time
	timer  *time.Timer
}

// errTrial refuses changes while a rule set is on trial: it would not be clear what to go back to.
type errTrial struct{ left time.Duration }

func (e errTrial) Error() string {
	return fmt.Sprintf("a rule set is on trial for another %d s", int(e.left.Seconds()+0.999))
}

// Hint returns how to end the trial.
func (e errTrial) Hint() string {
	return "keep it: weir fw confirm, or wait until the rules before are back"
}

var errNoTrial = errors.New("no rule set is on trial; nothing to confirm")

// view shows the rules in force and their Program to f, which must not keep them.
func (b *rulebook) view(f func(ruleState, *rule.Program)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.rules, b.program)
}

// trialLeft returns the name of the rule set on trial and how long it has left; false when there is
// none.
func (b *rulebook) trialLeft() (name string, left time.Duration, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trial == nil {
		return "", 0, false
	}
	return b.trial.name, time.Until(b.trial.ends), true
}

// change edits a copy of the rules and puts it in force.
func (b *rulebook) change(edit func(*rule.Ruleset) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.onTrialLocked(); err != nil {
		return err
	}
	next := b.rules
	next.set = b.rules.set.Clone()
	if err := edit(next.set); err != nil {
		return err
	}
	return b.enforceSavedLocked(next)
}

// begin puts the first rules in force. They come from a file and may not fit on the disk: unsaved
// is the error because of which a restart would begin with other ones. Without save a restart does
// not begin with them.
func (b *rulebook) begin(first ruleState, save bool) (unsaved, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.enforceLocked(first); err != nil {
		return nil, err
	}
	if !save {
		return nil, nil
	}
	return b.store.save(first), nil
}

// saveAgain saves the rules in force, after that has failed at the start. Once the rulebook is
// closed it does nothing.
func (b *rulebook) saveAgain() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil
	case b.trial != nil:
		return b.store.save(b.trial.before)
	}
	return b.store.save(b.rules)
}

// load replaces the rules. With a trial longer than 0 the rules before come back when it ends
// unconfirmed, whether or not the client is still there.
func (b *rulebook) load(next ruleState, try time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.onTrialLocked(); err != nil {
		return err
	}
	if try <= 0 {
		return b.enforceSavedLocked(next)
	}
	before := b.rules
	if err := b.enforceLocked(next); err != nil {
		return err
	}
	t := &trial{name: next.source, before: before, ends: time.Now().Add(try)}
	t.timer = time.AfterFunc(try, func() {
		if err := b.revert(t); err != nil {
			b.failed(fmt.Errorf("go back to the rules before %s: %w", t.name, err))
		}
	})
	b.trial = t
	return nil
}

// loadFile is load for a new version of the owner's rule file: the rules saved from now on have it
// as their base.
func (b *rulebook) loadFile(next ruleState, version string) error {
	before := b.store.setBase(version)
	err := b.load(next, 0)
	if err != nil {
		b.store.setBase(before)
	}
	return err
}

// confirm keeps the rules that are on trial. If they cannot be saved, the trial continues.
func (b *rulebook) confirm() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trial == nil {
		return errNoTrial
	}
	if err := b.store.save(b.rules); err != nil {
		return fmt.Errorf("%w; save the rules: %w", errTrial{time.Until(b.trial.ends)}, err)
	}
	b.trial.timer.Stop()
	b.trial = nil
	return nil
}

// revert ends a trial that was not confirmed.
func (b *rulebook) revert(t *trial) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trial != t {
		return nil
	}
	b.trial = nil
	return b.enforceLocked(t.before)
}

// close ends a trial by going back to the rules before it.
func (b *rulebook) close() error {
	b.mu.Lock()
	t := b.trial
	b.mu.Unlock()
	var err error
	if t != nil {
		t.timer.Stop()
		err = b.revert(t)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && b.rules.set != nil {
		_ = b.store.tidy(b.rules) // the file is as good without
	}
	b.closed = true
	return err
}

func (b *rulebook) onTrialLocked() error {
	if b.trial == nil {
		return nil
	}
	return errTrial{time.Until(b.trial.ends)}
}

// enforceSavedLocked puts rules in force and saves them, or neither. What may fail for want of
// space comes first: rules that were in force for a moment have cut what they did not let pass.
func (b *rulebook) enforceSavedLocked(next ruleState) error {
	p, err := next.compile()
	if err != nil {
		return err
	}
	saved, err := b.store.prepare(next)
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
			b.enforceLocked(before))
	}
	if b.saved != nil {
		b.saved()
	}
	return nil
}

// enforceLocked compiles rules and hands them to the engine. An error leaves everything as it was.
func (b *rulebook) enforceLocked(next ruleState) error {
	p, err := next.compile()
	if err != nil {
		return err
	}
	return b.putLocked(next, p)
}

// putLocked hands compiled rules to the engine. An error leaves everything as it was.
func (b *rulebook) putLocked(next ruleState, p *rule.Program) error {
	if err := b.prepare(p); err != nil {
		return err
	}
	tables := changedTables(b.rules.set, next.set)
	if err := b.engine.Replace(p, tables); err != nil {
		if b.program == nil {
			return err
		}
		for name := range tables {
			tables[name] = b.rules.members(name)
		}
		// The error may come from after the switch.
		return errors.Join(err, b.engine.Replace(b.program, tables))
	}
	old := b.program
	b.rules, b.program = next, p
	if b.loaded != nil {
		b.loaded(old, p, next.set)
	}
	return nil
}
