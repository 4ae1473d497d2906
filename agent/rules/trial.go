package rules

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// trial is a rule set that is rolled back unless it is confirmed. Book.mu guards its fields.
type trial struct {
	name   string
	before Version
	ends   time.Time
	timer  *time.Timer
	file   *newFile      // to write when it is confirmed; may be nil
	ended  func()        // called when the previous rules are in force again; may be nil
	pause  time.Duration // until the next try to go back; 0 while none has failed
}

// The pauses between two tries to go back from a trial double from the first to the last.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// aboutTrial is the subject of the problem that a trial cannot end.
const aboutTrial = "the end of a trial"

// The longest and shortest trial of a rule set.
const (
	minTrial = time.Second
	maxTrial = time.Hour
)

// checkTrial refuses a trial that is too short or too long.
func checkTrial(t time.Duration) error {
	if t < minTrial || t > maxTrial {
		return fmt.Errorf("a trial takes between %v and %v, not %v", minTrial, maxTrial, t)
	}
	return nil
}

// beginTrialLocked has the rules in force go back to those before, unless they are confirmed in
// time, whether or not the client is still there.
func (b *Book) beginTrialLocked(name string, before Version, try time.Duration) {
	b.tryLocked(name, before, try, nil)
}

func (b *Book) tryLocked(name string, before Version, try time.Duration, ended func()) {
	t := &trial{name: name, before: before, ends: time.Now().Add(try), ended: ended}
	t.timer = time.AfterFunc(try, func() { b.timeIsUp(t) })
	b.trial = t
}

// timeIsUp goes back from a trial that was not confirmed. While the rules before cannot be in
// force, the trial continues, and it is tried again.
func (b *Book) timeIsUp(t *trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.trial != t {
		return
	}
	if err := b.leaveTrialLocked(); err != nil {
		t.pause = min(max(2*t.pause, firstPause), lastPause)
		t.ends = time.Now().Add(t.pause)
		t.timer.Reset(t.pause)
		b.config.Problems.Set(aboutTrial,
			fmt.Sprintf("%s was not confirmed, but stays in force: %v", logged(t.name), err),
			"it is tried again; keep the rules on trial: weir fw confirm")
		return
	}
	b.config.Log.Warn("not confirmed: the rules before are in force", "file", logged(t.name))
	if t.ended != nil {
		go t.ended() // it may ask the Book
	}
}

// leaveTrialLocked ends the trial by going back to the rules before. An error leaves it as it was.
func (b *Book) leaveTrialLocked() error {
	before := b.trial.before
	before.Set.Expire(b.config.Clock.Now())
	if err := b.returnLocked(before); err != nil {
		return fmt.Errorf("go back to the rules before: %w", err)
	}
	b.endTrialLocked()
	return nil
}

// endTrialLocked ends the trial, whichever rules are in force now.
func (b *Book) endTrialLocked() {
	b.trial.timer.Stop()
	b.trial = nil
	b.config.Problems.Solved(aboutTrial)
}

// errTrial refuses changes while a rule set is on trial: it would not be clear what to go back to.
type errTrial struct{ left time.Duration }

func (e errTrial) Error() string {
	return fmt.Sprintf("a rule set is on trial for another %d s", int(e.left.Seconds()+0.999))
}

// Hint returns how to end the trial.
func (e errTrial) Hint() string {
	return "keep it: weir fw confirm; go back now: weir fw revert"
}

var errNoTrial = &api.Error{Message: "no rule set is on trial; nothing to confirm",
	Advice: adviceTrial}

var errNoTrialToEnd = &api.Error{Message: "no rule set is on trial; nothing to go back from",
	Advice: adviceTrial}

const adviceTrial = "weir fw load FILE --confirm 30s puts one on trial; " +
	"weir status shows what is in force"

// TrialLeft returns the name of the rule set on trial and how long it has left; false when there is
// none.
func (b *Book) TrialLeft() (name string, left time.Duration, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trial == nil {
		return "", 0, false
	}
	return b.trial.name, time.Until(b.trial.ends), true
}

// confirm keeps the rules that are on trial. If they cannot be saved, the trial continues.
func (b *Book) confirm() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if b.trial == nil {
		return errNoTrial
	}
	if err := b.saveTrialLocked(b.trial.file); err != nil {
		return fmt.Errorf("%w; save the rules: %w", errTrial{time.Until(b.trial.ends)}, err)
	}
	b.endTrialLocked()
	return nil
}

// saveTrialLocked saves the rules on trial, and writes their rule file, nil for none: both, or
// neither. What may fail for want of space comes first. If the agent dies in between, the rule file
// alone is there, and the next start begins with it: the owner has confirmed it.
func (b *Book) saveTrialLocked(file *newFile) (err error) {
	if file == nil {
		return b.store.save(b.rules)
	}
	base := b.store.setBase(fileVersion([]byte(file.text)))
	defer func() {
		if err != nil {
			b.store.setBase(base)
		}
	}()
	saved, err := b.store.prepare(b.rules)
	if err != nil {
		return err
	}
	undo, err := file.write()
	if err != nil {
		saved.Discard()
		return fmt.Errorf("write the rule file: %w", err)
	}
	if err := saved.Commit(); err != nil {
		return errors.Join(err, undo())
	}
	return nil
}

// goBack ends the trial now, and returns it. If the rules before cannot be in force, the trial
// continues. A host does not leave the trial of its cluster alone.
func (b *Book) goBack() (*trial, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.trial
	switch {
	case b.closed:
		return nil, errClosed
	case b.config.Shared != nil:
		return nil, errShared{}
	case t == nil:
		return nil, errNoTrialToEnd
	}
	if err := b.leaveTrialLocked(); err != nil {
		return nil, fmt.Errorf("%w; %w", errTrial{time.Until(t.ends)}, err)
	}
	return t, nil
}

// replaceableLocked refuses to load rules on this host while a rule set is on trial, where they
// come from the host's cluster, and after Close.
func (b *Book) replaceableLocked() error {
	if b.closed {
		return errClosed
	}
	if b.config.Shared != nil {
		return errShared{}
	}
	return b.onTrialLocked()
}

// changeableLocked refuses to change the rules in force by a command where none can be loaded, and
// while the host is locked down.
func (b *Book) changeableLocked() error {
	if err := b.replaceableLocked(); err != nil || b.rules.lockDown == nil {
		return err
	}
	return errLockedDown{}
}

// changeable returns why no command can change the rules now.
func (b *Book) changeable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changeableLocked()
}

func (b *Book) onTrialLocked() error {
	if b.panic != nil {
		return errPanic{}
	}
	if b.trial == nil {
		return nil
	}
	return errTrial{time.Until(b.trial.ends)}
}
