package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
	"github.com/weirnet/weir/store/cluster"
)

// Initial chooses the rules to start with.
func (m *Manager) Initial() (Initial, error) {
	if m.config.Shared != nil {
		if shared, ok := m.config.Shared(); ok {
			m.store.setBase(ofCluster)
			return Initial{Version: shared, Denied: shared.Strict}, nil
		}
	}
	file, needed := m.file()
	m.store.tries = m.config.Confirm > 0
	first, err := m.store.first(file, needed)
	if err == nil {
		err = m.firstLists(first)
	}
	if first.shared && m.config.Shared != nil {
		m.store.setBase(ofCluster)
	}
	if why := m.config.Unfollowed(); why != nil && err == nil {
		err = unfilled(first.Set, why)
	}
	if err != nil {
		return m.lockDown(file, err)
	}
	if first.problem != nil {
		m.config.Problems.Set(aboutFile, "the rule file cannot be used; the rules of the last "+
			"change are in force: "+first.problem.Error(), "weir fw check "+file)
	}
	if first.unconfirmed {
		m.showUnconfirmed()
	}
	if first.aside {
		m.config.Log.Info("the rule file was edited: it is in force, the saved rules were set "+
			"aside", "aside", m.store.path+".old")
	}
	if first.damage != nil {
		m.config.Problems.Put(*first.damage)
	}
	return first, nil
}

// Begin puts the first rules in force, and saves them, or retries that for as long as the node
// runs. Rules that the owner wants confirmed are on trial first, unless they were in force before.
// During a panic they cannot be, and would be in force untried when it ends: that is an error.
func (m *Manager) Begin(first Initial) error {
	if try := m.config.Confirm; try > 0 && first.before != nil {
		if m.inPanicBefore() {
			return &api.Error{Message: "during a panic " + first.Source + " cannot be on trial",
				Advice: "start without --confirm, or undo the change of that file; " +
					"weir panic --end ends the panic"}
		}
		if err := m.try(first, try); err != nil {
			return fmt.Errorf("enforce %s: %w", first.Source, err)
		}
		return nil
	}
	unsaved, err := m.begin(first.Version)
	if err != nil {
		return fmt.Errorf("enforce %s: %w", first.Source, err)
	}
	m.unsaved(unsaved)
	return nil
}

// try puts the first rules in force on trial.
func (m *Manager) try(first Initial, most time.Duration) error {
	if err := cluster.CheckTrial(most); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store.setBase(first.base)
	if err := m.recordTrialLocked(*first.before, first.file); err != nil {
		return err
	}
	if err := m.enforceLocked(first.Version); err != nil {
		return err
	}
	m.beginTrialLocked(first.Source, *first.before, most)
	m.trial.base = first.file
	return nil
}

// aboutFile is the subject of the problem that the rule file is not in force.
const aboutFile = "the rule file"

// showUnconfirmed has the status show that the rule file was on trial, and is not in force.
func (m *Manager) showUnconfirmed() {
	file, _ := m.file()
	m.config.Problems.Set(aboutFile, file+" was on trial and was not confirmed: the rules before "+
		"it are in force, also after a restart", "edit it and run systemctl reload weir, or put "+
		"it on trial again: weir fw load --confirm 30s "+file)
}

// unfilled returns why rules cannot be used on a host that does not know whether it belongs to a
// cluster. A table that they ask about and do not define may be one that the cluster fills. While
// it is empty, what a rule denies to its members would pass. It returns nil if there is none.
func unfilled(set *rule.Ruleset, why error) error {
	for _, r := range set.Active() {
		for _, t := range slices.Concat(r.Clauses()...) {
			if t.Op != op.CondSrcTable && t.Op != op.CondDstTable {
				continue
			}
			if _, defined := set.Tables[t.Name]; !defined {
				return errUnfilled{r.Number, t.Name, why}
			}
		}
	}
	return nil
}

// errUnfilled refuses rules with a table that the host's cluster may have to fill.
type errUnfilled struct {
	rule  uint16
	table string
	why   error
}

func (e errUnfilled) Error() string {
	return fmt.Sprintf("rule %d matches table %s, which the host's cluster may fill, but the "+
		"store cannot be followed: %v", e.rule, e.table, e.why)
}
func (e errUnfilled) Unwrap() error { return e.why }

// Hint returns what to do.
func (errUnfilled) Hint() string { return "make the host a member again: weir join TOKEN@HOST" }

// saveEvery is how often saving the first rules is tried again.
const saveEvery = 5 * time.Second

// aboutSaving is the subject of the problem that the rules in force are not the saved ones.
const aboutSaving = "saving the rules"

// unsaved records that the first rules could not be saved, and retries for as long as the node
// runs.
func (m *Manager) unsaved(err error) {
	if err == nil {
		m.config.Problems.Solved(aboutSaving)
		return
	}
	m.config.Problems.Set(aboutSaving, "the rules in force cannot be saved: "+err.Error(),
		"free space on the disk; Weir tries again")
	time.AfterFunc(saveEvery, func() { m.unsaved(m.saveAgain()) })
}
