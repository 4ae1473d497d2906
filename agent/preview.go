package agent

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/observe"
)

// longestReplay bounds how far back a preview looks.
const longestReplay = time.Hour

// preview tells what a change of the rules would do, and if asked for what the changed rules would
// have decided since some time. It changes nothing. One is made at a time: each needs an engine for
// the rules in force and one for the changed ones.
func (n *Node) preview(ctx context.Context, c api.RuleChange) (a api.Preview, err error) {
	select {
	case n.previews <- struct{}{}:
		defer func() { <-n.previews }()
	case <-ctx.Done():
		return a, ctx.Err()
	}
	var events rules.Events
	if c.Replay != "" {
		ago, err := time.ParseDuration(c.Replay)
		if err != nil || ago <= 0 || ago > longestReplay {
			return a, fmt.Errorf("replay %q is not a duration up to %v", c.Replay, longestReplay)
		}
		events = func() (iter.Seq[observe.Event], error) {
			return n.observer.Past(time.Now().Add(-ago))
		}
	}
	return n.explain.Preview(ctx, c.Text, events)
}
