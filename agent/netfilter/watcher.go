package netfilter

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirnet/weir/internal/nl"
)

// Interval is how often a Watcher is to look: the longest that a flow may begin without a new rule.
const Interval = time.Second

// translates returns where netfilter may translate a packet of the scope, "" if it does not.
func translates(s Scope) (string, error) {
	found, err := s.nftables()
	if nl.NFTAbsent(err) {
		found, err = "", nil
	}
	if found != "" || err != nil {
		return found, err
	}
	return s.legacy()
}

// Engine is what a Watcher needs of the engines.
type Engine interface {
	// SetNetfilter sets whether netfilter may translate what goes from or to pods.
	SetNetfilter(translates bool) error
}

// Watcher tells the engine whether netfilter may translate what goes from or to pods.
type Watcher struct {
	Engine Engine
	Scope  func() Scope
	Log    *slog.Logger
	// Stack returns why all packets between pods and other hosts go through the host's stack, "" if
	// they need not. It may be nil.
	Stack func() string

	mu         sync.Mutex // its place in the lock order: agent/doc.go
	looked     bool       // guarded by mu
	without    bool       // guarded by mu; the kernel had no nftables
	generation uint32     // guarded by mu
	found      string     // guarded by mu
	warning    string     // guarded by mu
}

// Refresh looks at netfilter's rules, if those of nftables have changed since, or if it is to look
// anyway: iptables-legacy does not report changes, nor do interfaces. What cannot be read may
// translate.
func (w *Watcher) Refresh(anyway bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.without && !anyway { // each question has the kernel search for a module
		return nil
	}
	generation, err := nl.NFTGeneration()
	w.without = nl.NFTAbsent(err)
	if err != nil && !w.without {
		return w.setLocked(unknown, err)
	}
	if w.looked && !anyway && generation == w.generation {
		return nil
	}
	found, err := translates(w.Scope())
	if err != nil {
		return w.setLocked(unknown, err)
	}
	w.generation = generation
	w.warning = ""
	if w.warning, err = w.dropped(found); err != nil {
		return w.setLocked(found, err)
	}
	return w.setLocked(found, nil)
}

// dropped returns a warning about what netfilter drops of the flows that go through the stack, ""
// if nothing.
func (w *Watcher) dropped(found string) (string, error) {
	why := ""
	if w.Stack != nil {
		why = w.Stack()
	}
	switch {
	case why != "":
		why = "they go through the host's stack, since the host has " + why
	case found != "":
		why = "their flows begin in the host's stack, since " + found + " may translate them"
	default:
		return "", nil
	}
	s := w.Scope()
	what, where, err := s.Dropped()
	if what == "" || err != nil {
		return "", err
	}
	return fmt.Sprintf("%s of netfilter drops %s: %s; let them pass there, see weir cni, beside "+
		"netfilter", where, what, why), nil
}

// Warnings says what netfilter drops of the flows that go through the stack, as far as its rules
// are understood.
func (w *Watcher) Warnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.warning == "" {
		return nil
	}
	return []string{w.warning}
}

const unknown = "rules that cannot be read"

// setLocked gives the engine what was found, and returns cause.
func (w *Watcher) setLocked(found string, cause error) error {
	if err := w.Engine.SetNetfilter(found != ""); err != nil {
		return err
	}
	switch {
	case found != "" && found != w.found:
		w.Log.Info("netfilter may translate what goes from or to pods", "where", found)
	case found == "" && w.found != "":
		w.Log.Info("netfilter translates nothing that goes from or to pods")
	}
	w.looked, w.found = cause == nil, found
	return cause
}
