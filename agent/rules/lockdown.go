package rules

import (
	"errors"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/internal/configfile"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// A boot with rules of which none can be used must not leave the host open. The node then enforces
// lockDownRules, the least that lets the owner repair it. They pass answers to what the host asks,
// addresses from DHCP, and ssh from where the last rules allowed it.
const lockDownRules = `add 1 check-state
add 2 allow ip from any to any out keep-state
add 3 allow udp from any 67 to any 68 in
add 4 allow udp from any 547 to any 546 in
`

// lockDownNext is the first number behind lockDownRules.
const lockDownNext = 5

// sshPort is the port by which the owner reaches the host.
const sshPort = 22

// aboutLockDown is the subject of the problem that the lock-down rules are in force.
const aboutLockDown = "the lock-down"

// SSH selects which ssh connections are allowed while the host is locked down.
type SSH string

// The values of SSH: as the last rules did, from everywhere, from nowhere.
const (
	SSHAsRules SSH = "rules"
	SSHAlways  SSH = "always"
	SSHNever   SSH = "never"
)

// lockDown returns the lock-down rules when there are rules but none that can be used. What an
// earlier agent left in force guards better than any lock-down; then the start is refused, as it is
// when the agent was not started for a boot.
func (m *Manager) lockDown(file string, why error) (Initial, error) {
	if !m.config.LockDown() {
		return Initial{}, why
	}
	set, err := rule.ParseFile("lock-down", lockDownRules, m.names)
	if err != nil {
		return Initial{}, errors.Join(why, err)
	}
	switch m.config.Settings.SSH {
	case SSHAlways:
		c, err := rule.ParseLine("add 100 allow tcp from any to me 22 in setup keep-state",
			m.names)
		if err := errors.Join(err, c.Apply(set)); err != nil {
			return Initial{}, errors.Join(why, err)
		}
	case SSHAsRules:
		for _, path := range []string{m.store.path, m.store.path + ".old", file} {
			if keepSSH(set, path, m.names) {
				break
			}
		}
	}
	_ = rulefile.ReadLists(set, nil, m.firstList) // what cannot be read yet is empty
	set.SetNow(m.config.Clock.Now())
	return Initial{Version: Version{Set: set, Strict: true, Source: "lock-down",
		lockDown: &problem.Problem{About: aboutLockDown, Problem: api.Problem{
			What: "the host is locked down, since its rules cannot be used: " + why.Error(),
			Advice: problem.Hint(why, "correct them, check them with weir fw check "+file+
				", and load them: weir fw load "+file)}}}}, nil
}

// showLockDownLocked has the status show whether the host is locked down.
func (m *Manager) showLockDownLocked() {
	if p := m.rules.lockDown; p != nil {
		m.config.Problems.Put(*p)
		return
	}
	m.config.Problems.Solved(aboutLockDown)
}

// errLockedDown refuses to change the rules of a lock-down.
type errLockedDown struct{}

func (errLockedDown) Error() string {
	return "the host is locked down: nothing is changed until rules are loaded"
}

// Hint returns what to do.
func (errLockedDown) Hint() string {
	return "weir status shows why; load rules: weir fw load FILE"
}

// keepSSH adds what the readable lines of a rule file say about ssh: whom they let in, and what
// decides that. It returns false when the file has no readable rule.
func keepSSH(set *rule.Ruleset, path string, names *rule.Names) (read bool) {
	text, err := configfile.Read(path)
	if err != nil {
		return false
	}
	var old rule.Ruleset
	batch := rule.NewBatch(&old)
	for line := range strings.Lines(string(text)) {
		c, err := rule.ParseLine(strings.TrimSpace(line), names)
		if err != nil || c.Kind == rule.CommandNone {
			continue
		}
		read = read || c.Kind == rule.CommandAdd
		_ = batch.Apply(c) // a line that does not apply, like a table created twice, is skipped
	}
	batch.Flush()
	set.Tables, set.Lists, set.Deadlines, set.Pipes = old.Tables, old.Lists, old.Deadlines,
		old.Pipes
	set.NATs, set.ManyPass = old.NATs, old.ManyPass
	for _, r := range old.Active() {
		set.Add(forSSH(r))
	}
	return read
}

// forSSH narrows a rule that allows, is a pipe, translates or forwards down to ssh. All others stay
// as they are, since they decide which packets come to one that allows: rules that deny or answer,
// jumps and tags. Numbers stay, for jumps, but behind what the host needs.
func forSSH(r *rule.Rule) *rule.Rule {
	kept := *r
	kept.Number, kept.Set = max(kept.Number, lockDownNext), 0
	switch kept.Action.Op {
	case op.ActionAllow, op.ActionPipe, op.ActionNAT, op.ActionFwd:
		kept.Options = slices.Concat(kept.Options, []rule.Clause{
			{{Op: op.CondProto, A: uint32(packet.ProtoTCP)}},
			{{Op: op.CondDstPort, Ranges: []rule.Range{{Lo: sshPort, Hi: sshPort}}}},
		})
	}
	return &kept
}
