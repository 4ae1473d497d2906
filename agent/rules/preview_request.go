package rules

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/observe"
)

// longestReplay bounds how far back a preview looks.
const longestReplay = time.Hour

// Previews answers requests for previews.
type Previews struct {
	explainer *Explainer
	past      func(since time.Time) (iter.Seq[observe.Event], error)
	turn      chan struct{} // has an element while a preview is made
}

// NewPreviews returns previews of changes of the rules that x explains. past opens the journal;
// what it returns is iterated once.
func NewPreviews(x *Explainer,
	past func(since time.Time) (iter.Seq[observe.Event], error)) *Previews {
	return &Previews{explainer: x, past: past, turn: make(chan struct{}, 1)}
}

// Make tells what a change of the rules would do, and if asked for what the changed rules would
// have decided since some time. It changes nothing. One is made at a time: each needs an engine for
// the rules in force and one for the changed ones.
func (p *Previews) Make(ctx context.Context, c api.RuleChange) (a api.Preview, err error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return a, ctx.Err()
	}
	var events Events
	if c.Replay != "" {
		ago, err := time.ParseDuration(c.Replay)
		if err != nil || ago <= 0 || ago > longestReplay {
			return a, fmt.Errorf("replay %q is not a duration up to %v", c.Replay, longestReplay)
		}
		events = func() (iter.Seq[observe.Event], error) {
			return p.past(time.Now().Add(-ago))
		}
	}
	return p.explainer.Preview(ctx, c.Text, events)
}
