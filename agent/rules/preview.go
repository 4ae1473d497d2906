package rules

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/rule"
)

// mostLinted is how many rules a preview examines for those that never match.
const mostLinted = 500

// preview is the rules in force and those of a change, each with an engine to ask.
type preview struct {
	now, then side
	ifs       []firewall.Interface
}

// side is one of the two.
type side struct {
	Version
	program *program.Program
	engine  *soft.Engine
}

func (p *preview) close() {
	for _, s := range []*side{&p.now, &p.then} {
		if s.engine != nil {
			s.engine.Close()
		}
	}
}

// Events opens the journal. What it returns must be iterated, once.
type Events func() (iter.Seq[observe.Event], error)

// Preview shows the effect of a change of the rules in force, and with events the verdicts of the
// changed rules for their flows. It changes nothing. It reads no files, because group weir may call
// it and must not read files of root through it.
func (x *Explainer) Preview(ctx context.Context, text string, events Events) (a api.Preview,
	err error) {
	a = api.Preview{Version: api.Version, Added: []api.Rule{}, Removed: []api.Rule{},
		Warnings: []string{}}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if at := strings.IndexFunc(text, unprintable); at >= 0 {
		a.Message = fmt.Sprintf("line %d has a character that cannot be printed",
			strings.Count(text[:at], "\n")+1)
		return a, nil
	}
	commands, err := rule.ParseCommands("change", text, x.Manager.names)
	if err != nil {
		a.Mistakes, a.Message = mistakes(err)
		return a, nil
	}
	if len(commands) == 0 {
		a.Message = "there is no command"
		return a, nil
	}
	p, err := x.preview(commands)
	defer p.close()
	if err != nil {
		a.Message = err.Error()
		return a, nil
	}
	a.Fine, a.Command = true, shellCommand(text)
	a.Added, a.Removed = difference(p.then.Set, p.now.Set), difference(p.now.Set, p.then.Set)
	if a.Warnings, err = x.newWarnings(p); err != nil || events == nil {
		return a, err
	}
	seq, err := events()
	if err != nil {
		return a, err
	}
	a.Replay = p.replay(ctx, seq, replayTime)
	return a, nil
}

// preview makes the change on a copy of the rules in force.
func (x *Explainer) preview(commands []*rule.Command) (p *preview, err error) {
	p = &preview{ifs: x.Interfaces()}
	x.Manager.View(func(r Version, _ *program.Program) {
		// members of tables change under the lock alone
		p.now.Version, p.then.Version = r, r
		p.now.Set, p.then.Set = r.Set.Clone(), r.Set.Clone()
		p.then.Set.Now = x.Manager.config.Clock.Now()
	})
	if _, err := p.then.apply("change", commands); err != nil {
		return p, err
	}
	if err := rulefile.ReadLists(p.then.Set, p.now.Set, readNoList); err != nil {
		return p, err
	}
	for _, s := range []*side{&p.now, &p.then} {
		if s.program, err = s.compile(new(rule.Cache)); err != nil {
			return p, err
		}
		if s.engine, err = x.engine(s.program, s.Set, p.ifs); err != nil {
			return p, err
		}
	}
	return p, nil
}

var errListUnread = errors.New("a preview does not read files: what the table would hold is not " +
	"known")

func readNoList(string) (*rule.List, error) { return nil, errListUnread }

// newWarnings returns what is doubtful about the changed rules and not about those in force.
func (x *Explainer) newWarnings(p *preview) (all []string, err error) {
	labels := x.Labels()
	old := warnings(p.now.Set, p.now.Strict, p.ifs, labels)
	all = []string{}
	if err := x.Manager.changeable(); err != nil {
		all = append(all, "the command would be refused now: "+err.Error())
	}
	for _, d := range warnings(p.then.Set, p.then.Strict, p.ifs, labels) {
		if !slices.Contains(old, d) {
			all = append(all, d)
		}
	}
	if len(p.then.Set.Rules) > mostLinted {
		return append(all, fmt.Sprintf("rules that never match were not looked for: there are "+
			"more "+
			"than %d", mostLinted)), nil
	}
	findings := func(s *rule.Ruleset) (lines []string, err error) {
		found, _, err := rule.Lint(s)
		for _, f := range found {
			lines = append(lines, f.String())
		}
		return lines, err
	}
	before, err := findings(p.now.Set)
	if err != nil {
		return all, err
	}
	after, err := findings(p.then.Set)
	for _, f := range after {
		if !slices.Contains(before, f) {
			all = append(all, f)
		}
	}
	return all, err
}

// difference lists the rules of one set that another one lacks.
func difference(of, without *rule.Ruleset) []api.Rule {
	type key struct {
		number   uint16
		set      uint8
		disabled bool
		text     string
	}
	keyOf := func(s *rule.Ruleset, r *rule.Rule) key {
		return key{r.Number, r.Set, s.Disabled>>r.Set&1 == 1, r.Text()}
	}
	left := map[key]int{}
	for _, r := range without.Rules {
		left[keyOf(without, r)]++
	}
	all := []api.Rule{}
	for _, r := range of.Rules {
		k := keyOf(of, r)
		if left[k]--; left[k] < 0 {
			all = append(all, api.Rule{Number: k.number, Set: k.set, Disabled: k.disabled,
				Text: k.text})
		}
	}
	return all
}

// mistakes lists the errors of rule text.
func mistakes(err error) (all []api.Mistake, message string) {
	many := rulefile.ParseErrors(err)
	if many == nil {
		return nil, err.Error()
	}
	for _, e := range many {
		all = append(all, api.Mistake{Line: e.Pos.Line, Column: e.Pos.Col, Message: e.Msg,
			Hint: e.Hint, Text: e.Text})
	}
	return all, ""
}

// unprintable reports whether a character could hide text of a command, or end it early, where it
// is pasted into a terminal.
func unprintable(c rune) bool { return !unicode.IsPrint(c) && c != '\n' && c != '\t' }

// plainWord has the characters that a shell leaves alone.
const plainWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"

// shellCommand writes the command of a shell that makes a change: all of it, or nothing.
func shellCommand(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		return "weir ipfw -q /dev/stdin <<'WEIR'\n" + strings.Join(lines, "\n") + "\nWEIR"
	}
	words := strings.Fields(lines[0])
	for i, w := range words {
		if strings.Trim(w, plainWord) != "" {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	if words[0] == "flush" {
		words = append(words, "-f")
	}
	return "weir fw " + strings.Join(words, " ")
}
