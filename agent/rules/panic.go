package rules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/rule"
)

// A panic denies everything but one session, until it is ended. It does not touch the saved rules:
// a file beside them says that a panic is in force. It is there before the panic is in force, and
// until the previous rules are, so that no restart lifts it. No rule is changed meanwhile.

// panicRecord is the content of the file.
type panicRecord struct {
	At      time.Time    `json:"at"`
	Boot    string       `json:"boot"` // in which the session is
	Session *api.Session `json:"session,omitempty"`
	// Tunnel is the UDP port of the tunnel that the session comes through, 0 for none.
	Tunnel uint16 `json:"tunnel,omitempty"`
}

// panicking is a panic that is on.
type panicking struct {
	panicRecord
	before Version // what comes back when it ends
}

// aboutPanic is the subject of the problem that a panic is in force.
const aboutPanic = "the panic"

// PanicFile is where a directory with saved rules has the record of a panic.
func PanicFile(saved string) string { return filepath.Join(filepath.Dir(saved), "panic.json") }

// rules returns the rules of a panic. After another boot the session is gone: then a new one may
// begin from where it was.
func (r *panicRecord) rules(boot string, names *rule.Names) (Version, error) {
	var text strings.Builder
	text.WriteString("add 1 check-state\n")
	if s := r.Session; s != nil {
		from, to := bare(s.From.Addr()), bare(s.To.Addr())
		if r.Boot == boot {
			fmt.Fprintf(&text, "add 2 allow tcp from %s %d to %s %d in keep-state\n", from,
				s.From.Port(), to, s.To.Port())
			fmt.Fprintf(&text, "add 3 allow tcp from %s %d to %s %d out keep-state\n", to,
				s.To.Port(), from, s.From.Port())
		} else {
			fmt.Fprintf(&text, "add 2 allow tcp from %s to %s %d in setup keep-state\n", from, to,
				s.To.Port())
		}
	}
	if r.Tunnel != 0 {
		fmt.Fprintf(&text, "add 4 allow udp from any to me %d in keep-state\n", r.Tunnel)
		fmt.Fprintf(&text, "add 5 allow udp from me %d to any out keep-state\n", r.Tunnel)
	}
	set, err := rule.ParseFile("panic", text.String(), names)
	return Version{Set: set, Strict: true, Source: "panic"}, err
}

func bare(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// Panic denies everything but a session, nil for none, from now on. A trial ends with it: the rules
// before the trial come back later. tunnel is the port of the tunnel that the session comes
// through, 0 for none.
func (m *Manager) Panic(ctx context.Context, s *api.Session, tunnel uint16) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	boot := m.config.Clock.Stamp().Boot
	p := &panicking{panicRecord{At: time.Now(), Boot: boot, Session: s, Tunnel: tunnel}, m.rules}
	switch {
	case m.panic != nil:
		p.before = m.panic.before
	case m.trial != nil:
		p.before = m.trial.before
	}
	next, err := p.rules(boot, m.names)
	if err != nil {
		return err
	}
	next.lockDown = p.before.lockDown // which the status still shows
	file := PanicFile(m.store.path)
	was, _ := os.ReadFile(file)
	text, err := json.Marshal(p.panicRecord)
	if err == nil {
		err = atomicfile.Write(file, text)
	}
	// What cannot be recorded is in force all the same, but a restart would lift it.
	unsaved := err
	if err := m.enforceLocked(next); err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: %w", err), restore(file, was))
	}
	if t := m.trial; t != nil {
		m.dropTrialLocked()
		if t.ended != nil {
			go t.ended() // it may ask the Manager
		}
	}
	m.panic = p
	m.showPanic()
	if unsaved != nil {
		return fmt.Errorf("everything is denied, but a restart of the agent would lift that: %w",
			unsaved)
	}
	kept := "no session"
	if s != nil {
		kept = fmt.Sprintf("%s -> %s", s.From, s.To)
	}
	m.config.Log.Warn("panic: everything is denied", "but", kept, "uid", api.ClientUID(ctx))
	return nil
}

// restore makes a file what it was.
func restore(file string, was []byte) error {
	if was != nil {
		return atomicfile.Write(file, was)
	}
	return atomicfile.Remove(file)
}

// showPanic has the status show the panic.
func (m *Manager) showPanic() {
	m.config.Problems.Set(aboutPanic, "panic: everything is denied since "+
		m.panic.At.Format(time.DateTime), "weir panic --end restores the previous rules")
}

// EndPanic restores the rules from before the panic.
func (m *Manager) EndPanic(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if m.panic == nil {
		return &api.Error{Message: "there is no panic to end",
			Advice: "weir status shows what is in force"}
	}
	before := m.panic.before
	before.Set.Expire(m.config.Clock.Now())
	if err := m.returnLocked(before); err != nil {
		return fmt.Errorf("the panic continues: %w", err)
	}
	m.panic = nil
	m.config.Problems.Solved(aboutPanic)
	if err := atomicfile.Remove(PanicFile(m.store.path)); err != nil {
		return fmt.Errorf("the previous rules are in force, but the next start would panic: %w",
			err)
	}
	m.config.Log.Warn("the panic has ended", "uid", api.ClientUID(ctx))
	return nil
}

// InPanic reports whether there is a panic, since when, and which session it allows.
func (m *Manager) InPanic() (at time.Time, s *api.Session, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.panic == nil {
		return at, nil, false
	}
	return m.panic.At, m.panic.Session, true
}

// inPanicBefore reports whether there is a record of a panic.
func (m *Manager) inPanicBefore() bool {
	_, err := os.Lstat(PanicFile(m.store.path))
	return err == nil
}

// resumePanicLocked continues a panic that was on before the start. A record that cannot be read is
// one of a panic that spares nothing.
func (m *Manager) resumePanicLocked(first Version) (on bool, err error) {
	if !m.inPanicBefore() {
		return false, nil
	}
	text, err := os.ReadFile(PanicFile(m.store.path))
	p := &panicking{before: first}
	if err == nil {
		err = json.Unmarshal(text, &p.panicRecord)
	}
	boot, next := m.config.Clock.Stamp().Boot, Version{}
	if err == nil {
		next, err = p.rules(boot, m.names)
	}
	if err != nil {
		p.panicRecord = panicRecord{}
		m.config.Log.Error("the record of the panic cannot be used: no session is kept",
			"err", err)
		if next, err = p.rules(boot, m.names); err != nil {
			return false, err
		}
	}
	next.lockDown = first.lockDown // which the status still shows
	if err := m.enforceLocked(next); err != nil {
		return false, err
	}
	m.panic = p
	m.showPanic()
	return true, nil
}

// lastingLocked returns the rules that the node has when a trial was not confirmed and a panic has
// ended: those that are saved.
func (m *Manager) lastingLocked() Version {
	switch {
	case m.panic != nil:
		return m.panic.before
	case m.trial != nil:
		return m.trial.before
	}
	return m.rules
}

// errPanic refuses changes during a panic.
type errPanic struct{}

func (errPanic) Error() string {
	return "a panic is in force: rules cannot be changed until it ends"
}

// Hint returns how to end it.
func (errPanic) Hint() string { return "weir panic --end" }

// keptLocked are the rule sets that may come into force again.
func (m *Manager) keptLocked() (sets []*rule.Ruleset) {
	if m.trial != nil {
		sets = append(sets, m.trial.before.Set)
	}
	if m.panic != nil {
		sets = append(sets, m.panic.before.Set)
	}
	return sets
}
