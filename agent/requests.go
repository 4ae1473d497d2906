package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/agent/watch"
	"github.com/weirnet/weir/rule"
)

// The longest and shortest trial of a rule set.
const (
	minTrial = time.Second
	maxTrial = time.Hour
)

// done is the answer to a change.
func (n *Node) done(message string) api.Done {
	a := api.Done{Version: api.Version, Message: message}
	n.book.view(func(r ruleState, _ *rule.Program) { a.Rules = len(r.set.Rules) })
	return a
}

func (n *Node) do(r api.Do) (api.Done, error) {
	message, err := n.book.do(r.Line)
	if err != nil {
		return api.Done{}, err
	}
	if strings.HasPrefix(strings.TrimSpace(r.Line), "zero") {
		now := time.Now()
		n.zeroed.Store(&now)
	}
	n.log.Info("changed", "command", r.Line)
	return n.done(message), nil
}

func (n *Node) load(r api.Load) (api.Done, error) {
	var try time.Duration
	if r.Confirm != "" {
		var err error
		if try, err = time.ParseDuration(r.Confirm); err != nil || try < minTrial ||
			try > maxTrial {
			return api.Done{}, fmt.Errorf("a trial takes between %v and %v, not %q", minTrial,
				maxTrial, r.Confirm)
		}
	}
	set, _, err := rulefile.Parse(r.Name, r.Text, n.book.names)
	if err != nil {
		return api.Done{}, err
	}
	if err := n.book.load(ruleState{set: set, strict: true, source: r.Name}, try); err != nil {
		return api.Done{}, err
	}
	n.problems.Solved(aboutLockDown)
	n.log.Info("loaded", "file", r.Name, "rules", len(set.Rules), "trial", try)
	if try == 0 {
		return n.done(""), nil
	}
	return n.done(fmt.Sprintf("on trial for %v; keep it: weir fw confirm", try)), nil
}

func (n *Node) confirm() (api.Done, error) {
	if err := n.book.confirm(); err != nil {
		return api.Done{}, err
	}
	n.log.Info("confirmed")
	return n.done(""), nil
}

// reload reads the rule file again, as at the start but for the saved rules: the owner asks for the
// file.
func (n *Node) reload() error {
	file := n.config.Rules
	if file == "" {
		file = n.config.Paths.Rules()
	}
	watch.Notify("RELOADING=1")
	defer watch.Notify("READY=1")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	set, _, err := rulefile.Parse(file, string(text), n.book.names)
	if err != nil {
		return err
	}
	if err := n.book.loadFile(ruleState{set: set, strict: true, source: file},
		version(text)); err != nil {
		return err
	}
	n.problems.Solved(aboutLockDown)
	n.log.Info("loaded", "file", file, "rules", len(set.Rules))
	return nil
}

// serveDown asks the node to stop and to remove every trace, and waits until that is done. With
// ?keep=1 its files stay.
func (n *Node) serveDown(w http.ResponseWriter, r *http.Request) {
	api.Reply(w, func() (api.Done, error) { return n.down(r.URL.Query().Get("keep") == "1") })
}

func (n *Node) down(keep bool) (api.Done, error) {
	n.mu.Lock()
	again := n.leaving
	n.leaving, n.keeping = true, keep || again && n.keeping
	n.mu.Unlock()
	if again {
		return api.Done{}, errors.New("the node is going down already")
	}
	close(n.downRequested)
	return api.Done{Version: api.Version}, <-n.downResult
}

func (n *Node) isLeaving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaving
}
