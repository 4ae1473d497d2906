package agent

import (
	"context"
	"fmt"

	"github.com/weirnet/weir/agent/cluster"
	"github.com/weirnet/weir/agent/host"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
)

// The order of a start: everything that can be wrong is found out first, and until the rules are
// loaded nothing that an earlier agent left is touched. A start that is refused leaves that in
// force. The rules then come with the names and labels that they ask about, whole, and the hooks
// with them. What comes after, pods, peers, history, page, may fail: the status shows a problem,
// and it is retried.

// begin puts the first rules in force. The connections that are open already become states before
// hooks are attached.
func (n *Node) begin(ctx context.Context) error {
	if err := sweepState(n.config.Paths); err != nil {
		n.problems.Add("files left by a crash cannot be removed: "+err.Error(), "")
	}
	first, err := n.rules.Initial()
	if err != nil {
		return err
	}
	own, err := n.pods.NameRecorded()
	if err != nil {
		return err
	}
	if n.cluster != nil {
		n.cluster.FillTablesFunc(cluster.FirstTables(first.NamedTables(), own))
	}
	if err := n.services.Load(); err != nil {
		n.log.Error("the services cannot be read", "err", err) // Begin notes a problem
	}
	if err := n.engine.SetInterfaces(n.links.Interfaces()); err != nil {
		return fmt.Errorf("set the interfaces: %w", err)
	}
	n.adoption.Begin(first, n.engine.TakenOver())
	if err := n.rules.Begin(first); err != nil {
		return err
	}
	n.stack.Refresh()
	go n.stack.Watch(ctx, &n.retry)
	if n.cluster != nil {
		n.cluster.FillTables()
	}

	pods := func() {
		n.retry.Until(ctx, "the pods cannot be taken over", "weir doctor",
			func() error { return n.beginPods(ctx) })
		n.retry.Until(ctx, "services are not in force", "weir doctor", n.services.Begin)
	}
	early := n.engine.Replaces()
	if early { // the engine in force knows the pods; ours must know them before it replaces that
		n.hooks.SetPaused(true)
		pods()
		n.hooks.SetPaused(false)
	}
	// An earlier agent's are in force, or nothing is guarded yet.
	n.retry.Until(ctx, "the forwarded ports of the settings are not in force", "weir doctor",
		n.nat.Apply)
	before := n.engine.Attached()
	n.hooks.Follow()
	n.retry.Until(ctx, "interfaces that are not to be guarded still are", "weir doctor",
		n.hooks.DetachOthers)
	n.hooks.LogNew(before)
	n.hooks.NoteForeign()
	go n.hooks.Watch(ctx, &n.retry)
	// Also where hooks were there before: an earlier start may have died between these and this.
	n.retry.Until(ctx, "the last resort is still in force", "weir doctor", kernel.UnblockAll)
	if !early {
		pods()
	}
	return nil
}

// recheckHooks looks whether hooks and pins are still there. Without the pins the next agent would
// begin without states, and after a moment without hooks. If they are hidden, the hooks of now
// would stay beside its own, with rules that nothing changes any more.
func (n *Node) recheckHooks() {
	const about = "the pins"
	if err := n.pinsInPlace(); err != nil {
		n.problems.Set(about, "the next agent will not find what this one enforces: "+err.Error(),
			"unmount what hides the bpf file system; if it was unmounted itself: "+
				"weir down --keep, then weir up")
	} else {
		n.problems.Solved(about)
	}
	n.hooks.Recheck()
}

// mayHavePods reports whether the settings have ranges, or pods of earlier ones are there.
func (n *Node) mayHavePods() bool {
	return len(n.config.Settings.Pods.Ranges) > 0 || len(n.pods.Networks()) > 0
}

// lookAtNetfilter looks at what netfilter translates, on a host that may have pods.
func (n *Node) lookAtNetfilter(anyway bool) {
	const about = "what netfilter translates"
	if !n.mayHavePods() {
		n.problems.Solved(about) // the last ones have gone
		return
	}
	if err := n.netfilter.Refresh(anyway); err != nil {
		n.problems.Set(about, "cannot read what netfilter translates: "+err.Error(),
			"until then, flows of pods begin in the host's stack; look at: nft list ruleset")
		return
	}
	n.problems.Solved(about)
}

// beginPods takes the pods of an earlier run over.
func (n *Node) beginPods(ctx context.Context) error {
	n.lookAtNetfilter(true)
	if n.mayHavePods() {
		if err := host.SetQdiscLinks(n.engine); err != nil {
			return err
		}
	}
	if err := n.pods.Begin(ctx); err != nil || !n.pods.TakenOver() {
		return err
	}
	go host.WatchQdiscs(ctx, &n.retry, n.engine, &n.problems)
	n.routes.MarkChanged(nl.RouteChange{MTU: true}) // those with an MTU of their own matter now
	return nil
}
