package rules

import (
	"context"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/internal/program"
)

// done is the answer to a change.
func (b *Book) done(message string) api.Done {
	a := api.Done{Version: api.Version, Message: message}
	b.View(func(r Version, _ *program.Program) { a.Rules = len(r.Set.Rules) })
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

// Do makes the change of one command.
func (b *Book) Do(ctx context.Context, r api.Do) (api.Done, error) {
	message, err := b.do(r.Line, r.Lenient)
	if err != nil {
		return api.Done{}, err
	}
	b.config.Log.Info("rules changed", "command", logged(r.Line), "uid", api.Caller(ctx))
	return b.done(message), nil
}

// Run executes the commands of a file on the rules in force, all or none.
func (b *Book) Run(ctx context.Context, r api.Commands) (api.Done, error) {
	message, err := b.doAll(r.Name, r.Text)
	if err != nil {
		return api.Done{}, err
	}
	b.config.Log.Info("rules changed", "file", logged(r.Name), "uid", api.Caller(ctx))
	return b.done(message), nil
}

// Load replaces the rules, on trial if that is asked for.
func (b *Book) Load(ctx context.Context, r api.Load) (api.Done, error) {
	var try time.Duration
	if r.Confirm != "" {
		var err error
		if try, err = time.ParseDuration(r.Confirm); err != nil {
			return api.Done{}, err
		}
		if err := checkTrial(try); err != nil {
			return api.Done{}, err
		}
	}
	file, err := b.newFile(r)
	if err != nil {
		return api.Done{}, err
	}
	set, err := rulefile.ParseGiven(r.Name, r.Text, b.names)
	if err != nil {
		return api.Done{}, err
	}
	if err := b.prepareLists(set); err != nil {
		return api.Done{}, err
	}
	set.Begin(b.config.Clock.Now())
	if err := b.load(Version{Set: set, Strict: true, Source: r.Name}, try, file); err != nil {
		return api.Done{}, err
	}
	b.config.Log.Info("rules loaded", "file", logged(r.Name), "rules", len(set.Rules), "trial", try,
		"uid", api.Caller(ctx))
	if try == 0 {
		return b.done(""), nil
	}
	return b.done(fmt.Sprintf("on trial for %v; keep it: weir fw confirm", try)), nil
}

// Confirm keeps the rules that are on trial.
func (b *Book) Confirm(ctx context.Context) (api.Done, error) {
	if err := b.confirm(); err != nil {
		return api.Done{}, err
	}
	b.config.Log.Info("rules confirmed", "uid", api.Caller(ctx))
	return b.done(""), nil
}

// Revert ends the trial now: the rules before are in force.
func (b *Book) Revert(ctx context.Context) (api.Done, error) {
	t, err := b.goBack()
	if err != nil {
		return api.Done{}, err
	}
	b.config.Log.Info("reverted: the rules before are in force", "file", logged(t.name),
		"uid", api.Caller(ctx))
	return b.done(""), nil
}

// Reload reads the rule file again, as at the start, but ignores the saved rules.
func (b *Book) Reload() error {
	file, _ := b.file()
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	set, err := rulefile.ParseGiven(file, string(text), b.names)
	if err != nil {
		return err
	}
	if err := b.prepareLists(set); err != nil {
		return err
	}
	set.Begin(b.config.Clock.Now())
	if err := b.loadFile(Version{Set: set, Strict: true, Source: file},
		fileVersion(text)); err != nil {
		return err
	}
	b.config.Log.Info("rules loaded", "file", file, "rules", len(set.Rules))
	return nil
}

// file returns the rule file, and whether it has to exist.
func (b *Book) file() (file string, needed bool) {
	if b.config.File != "" {
		return b.config.File, true
	}
	return b.config.Default, false
}
