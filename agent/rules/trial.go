package rules

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/api"
)

// trial is a rule set that is rolled back unless it is confirmed. Manager.mu guards its fields.
type trial struct {
	name   string
	before Version
	base   string // version of the rule file that is on trial; "" for other rules
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

// beginTrialLocked has the rules in force go back to those before, unless they are confirmed in
// time, whether or not the client is still there.
func (m *Manager) beginTrialLocked(name string, before Version, try time.Duration) {
	m.tryLocked(name, before, try, nil)
}

func (m *Manager) tryLocked(name string, before Version, try time.Duration, ended func()) {
	t := &trial{name: name, before: before, ends: time.Now().Add(try), ended: ended}
	t.timer = time.AfterFunc(try, func() { m.timeIsUp(t) })
	m.trial = t
}

// recordTrialLocked writes to disk that a version of the rule file is on trial. What is saved until
// it is confirmed, and after a revert, is based on what it was based on, and says what is not
// confirmed. Rules of a lock-down are not saved: after them every start reads the rule file.
func (m *Manager) recordTrialLocked(before Version, version string) error {
	was := m.store.version()
	base, _, _ := strings.Cut(was, unconfirmed)
	if base == version || before.lockDown != nil {
		return nil
	}
	m.store.setBase(base + unconfirmed + version)
	if err := m.store.save(before); err != nil {
		m.store.setBase(was)
		return fmt.Errorf("nothing was changed: save that it is on trial: %w", err)
	}
	return nil
}

// timeIsUp goes back from a trial that was not confirmed. While the previous rules cannot be in
// force, the trial continues, and it is tried again.
func (m *Manager) timeIsUp(t *trial) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.trial != t {
		return
	}
	if err := m.leaveTrialLocked(); err != nil {
		t.pause = min(max(2*t.pause, firstPause), lastPause)
		t.ends = time.Now().Add(t.pause)
		t.timer.Reset(t.pause)
		m.config.Problems.Set(aboutTrial,
			fmt.Sprintf("%s was not confirmed, but stays in force: %v", logged(t.name), err),
			"Weir tries again; keep the rules on trial: weir fw confirm")
		return
	}
	m.config.Log.Warn("not confirmed: the previous rules are in force", "file", logged(t.name))
	if t.ended != nil {
		go t.ended() // it may ask the Manager
	}
}

// leaveTrialLocked ends the trial by going back to the previous rules. After an error it continues.
func (m *Manager) leaveTrialLocked() error {
	before := m.trial.before
	before.Set.Expire(m.config.Clock.Now())
	if err := m.returnLocked(before); err != nil {
		return fmt.Errorf("go back to the previous rules: %w", err)
	}
	m.dropTrialLocked()
	return nil
}

// dropTrialLocked ends a trial that was not confirmed.
func (m *Manager) dropTrialLocked() {
	ofFile := strings.HasSuffix(m.store.version(), unconfirmed+m.trial.base)
	m.endTrialLocked()
	if ofFile {
		m.showUnconfirmed()
	}
}

// endTrialLocked ends the trial, whichever rules are in force now.
func (m *Manager) endTrialLocked() {
	m.trial.timer.Stop()
	m.trial = nil
	m.config.Problems.Solved(aboutTrial)
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

// errUnsaved refuses to keep the rules on trial, which cannot be saved. The trial continues.
type errUnsaved struct {
	trial errTrial
	err   error
}

func (e errUnsaved) Error() string { return fmt.Sprintf("%v; save the rules: %v", e.trial, e.err) }

// Unwrap returns both.
func (e errUnsaved) Unwrap() []error { return []error{e.trial, e.err} }

// Hint returns what keeps them.
func (e errUnsaved) Hint() string {
	do := "remove the cause"
	switch {
	case errors.Is(e.err, unix.ENOSPC), errors.Is(e.err, unix.EDQUOT):
		do = "free space on that file system"
	case errors.Is(e.err, unix.EROFS):
		do = "make that file system writable (mount -o remount,rw)"
	}
	return do + ", then: weir fw confirm; go back now: weir fw revert"
}

var errNoTrial = &api.Error{Message: "no rule set is on trial; nothing to confirm",
	Advice: adviceTrial}

var errNoTrialToEnd = &api.Error{Message: "no rule set is on trial; nothing to go back from",
	Advice: adviceTrial}

const adviceTrial = "weir fw load FILE --confirm 30s puts one on trial; " +
	"weir status shows what is in force"

// TrialLeft returns the name of the rule set on trial and how long it has left; false when there is
// none.
func (m *Manager) TrialLeft() (name string, left time.Duration, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.trial == nil {
		return "", 0, false
	}
	return m.trial.name, time.Until(m.trial.ends), true
}

// confirm keeps the rules that are on trial. If they cannot be saved, the trial continues.
func (m *Manager) confirm() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if m.trial == nil {
		return errNoTrial
	}
	if err := m.saveTrialLocked(); err != nil {
		return errUnsaved{errTrial{time.Until(m.trial.ends)}, err}
	}
	m.endTrialLocked()
	return nil
}

// saveTrialLocked saves the rules on trial, and writes their rule file, nil for none: both, or
// neither. What may fail for want of space comes first. If the agent dies in between, the rule file
// alone is there, and the next start begins with it: the owner has confirmed it.
func (m *Manager) saveTrialLocked() (err error) {
	file, next := m.trial.file, m.trial.base
	if file != nil {
		next = fileVersion([]byte(file.text))
	}
	if next == "" {
		return m.store.save(m.rules)
	}
	base := m.store.setBase(next)
	defer func() {
		if err != nil {
			m.store.setBase(base)
			return
		}
		m.config.Problems.Solved(aboutFile)
	}()
	saved, err := m.store.prepare(m.rules)
	if err != nil {
		return err
	}
	if file == nil {
		return saved.Commit()
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

// goBack ends the trial now, and returns it. If the previous rules cannot be in force, the trial
// continues. A host does not leave the trial of its cluster alone.
func (m *Manager) goBack() (*trial, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.trial
	switch {
	case m.closed:
		return nil, errClosed
	case m.config.Shared != nil:
		return nil, errShared{}
	case t == nil:
		return nil, errNoTrialToEnd
	}
	if err := m.leaveTrialLocked(); err != nil {
		return nil, fmt.Errorf("%w; %w", errTrial{time.Until(t.ends)}, err)
	}
	return t, nil
}

// replaceableLocked refuses to load rules on this host while a rule set is on trial, where they
// come from the host's cluster, and after Close.
func (m *Manager) replaceableLocked() error {
	if m.closed {
		return errClosed
	}
	if m.config.Shared != nil {
		return errShared{}
	}
	return m.onTrialLocked()
}

// changeableLocked refuses to change the rules in force by a command where none can be loaded, and
// while the host is locked down.
func (m *Manager) changeableLocked() error {
	if err := m.replaceableLocked(); err != nil || m.rules.lockDown == nil {
		return err
	}
	return errLockedDown{}
}

// changeable returns why no command can change the rules now.
func (m *Manager) changeable() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changeableLocked()
}

func (m *Manager) onTrialLocked() error {
	if m.panic != nil {
		return errPanic{}
	}
	if m.trial == nil {
		return nil
	}
	return errTrial{time.Until(m.trial.ends)}
}
