package rules

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/internal/configfile"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/store/cluster"
)

// done is the answer to a change.
func (m *Manager) done(message string) api.Done {
	a := api.Done{Version: api.Version, Message: message}
	m.View(func(r Version, _ *program.Program) { a.Rules = len(r.Set.Rules) })
	return a
}

// maxLogged is how many bytes of a text of a caller a line of the log has: a command may have a
// million addresses.
const maxLogged = 200

// logged is a text of a caller for the log: what is too long is cut, and its length says so.
func logged(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	end := maxLogged
	for end > maxLogged-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:end], len(text))
}

// RunCommand makes the change of one command.
func (m *Manager) RunCommand(ctx context.Context, r api.Command) (api.Done, error) {
	message, err := m.do(r.Line, r.Lenient)
	if err != nil {
		return api.Done{}, err
	}
	m.config.Log.Info("rules changed", "command", logged(r.Line), "uid", api.ClientUID(ctx))
	return m.done(message), nil
}

// RunCommands executes the commands of a file on the rules in force, all or none.
func (m *Manager) RunCommands(ctx context.Context, r api.Commands) (api.Done, error) {
	message, err := m.doAll(r.Name, r.Text)
	if err != nil {
		return api.Done{}, err
	}
	m.config.Log.Info("rules changed", "file", logged(r.Name), "uid", api.ClientUID(ctx))
	return m.done(message), nil
}

// Load replaces the rules, on trial if that is asked for.
func (m *Manager) Load(ctx context.Context, r api.Load) (api.Done, error) {
	var try time.Duration
	if r.Confirm != "" {
		var err error
		if try, err = time.ParseDuration(r.Confirm); err != nil {
			return api.Done{}, err
		}
		if err := cluster.CheckTrial(try); err != nil {
			return api.Done{}, err
		}
	}
	file, err := m.newFile(r)
	if err != nil {
		return api.Done{}, err
	}
	set, err := rulefile.ParseGiven(r.Name, r.Text, m.names)
	if err != nil {
		return api.Done{}, err
	}
	if err := m.prepareLists(set); err != nil {
		return api.Done{}, err
	}
	set.SetNow(m.config.Clock.Now())
	next := Version{Set: set, Strict: true, Source: r.Name}
	if version := fileVersion([]byte(r.Text)); file == nil && version == m.fileNow() {
		err = m.loadFile(next, try, version)
	} else {
		err = m.load(next, try, file)
	}
	if err != nil {
		return api.Done{}, err
	}
	m.config.Log.Info("rules loaded", "file", logged(r.Name), "rules", len(set.Rules), "trial", try,
		"uid", api.ClientUID(ctx))
	if try == 0 {
		return m.done(""), nil
	}
	return m.done(fmt.Sprintf("on trial for %v; keep it: weir fw confirm", try)), nil
}

// Confirm keeps the rules that are on trial.
func (m *Manager) Confirm(ctx context.Context) (api.Done, error) {
	if err := m.confirm(); err != nil {
		return api.Done{}, err
	}
	m.config.Log.Info("rules confirmed", "uid", api.ClientUID(ctx))
	return m.done(""), nil
}

// Revert ends the trial now: the previous rules are in force.
func (m *Manager) Revert(ctx context.Context) (api.Done, error) {
	t, err := m.goBack()
	if err != nil {
		return api.Done{}, err
	}
	m.config.Log.Info("reverted: the previous rules are in force", "file", logged(t.name),
		"uid", api.ClientUID(ctx))
	return m.done(""), nil
}

// Reload reads the rule file again, as at the start, but ignores the saved rules.
func (m *Manager) Reload() error {
	file, _ := m.file()
	text, err := configfile.Read(file)
	if err != nil {
		return err
	}
	set, err := rulefile.ParseGiven(file, string(text), m.names)
	if err != nil {
		return err
	}
	if err := m.prepareLists(set); err != nil {
		return err
	}
	set.SetNow(m.config.Clock.Now())
	if err := m.loadFile(Version{Set: set, Strict: true, Source: file}, 0,
		fileVersion(text)); err != nil {
		return err
	}
	m.config.Log.Info("rules loaded", "file", file, "rules", len(set.Rules))
	return nil
}

// fileNow returns the version of the rule file as it is, "" if it cannot be read.
func (m *Manager) fileNow() string {
	file, _ := m.file()
	text, err := configfile.Read(file)
	if err != nil {
		return ""
	}
	return fileVersion(text)
}

// file returns the rule file, and whether it has to exist.
func (m *Manager) file() (file string, needed bool) {
	if m.config.File != "" {
		return m.config.File, true
	}
	return m.config.Default, false
}
