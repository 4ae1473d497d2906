package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/pod"
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
	first, err := n.rules.First()
	if err != nil {
		return err
	}
	n.left = leftLabels{engine: n.engine}
	labels := n.nameRecordedPods()
	for table, members := range labels {
		if err := n.engine.SetTable(table, members); err != nil {
			return err
		}
	}
	if err := n.engine.SetInterfaces(n.links.Interfaces()); err != nil {
		return fmt.Errorf("set the interfaces: %w", err)
	}
	n.denied = n.engine.TakenOver() && first.Denied
	if err := n.rules.Begin(first); err != nil {
		return err
	}

	pods := func() {
		n.retry.Until(ctx, "the pods cannot be taken over", "weir doctor",
			func() error { return n.takePods(ctx, labels) })
	}
	early := n.engine.Replaces()
	if early { // the engine in force knows the pods; ours must know them before it replaces that
		n.hooks.Hold(true)
		pods()
		n.hooks.Hold(false)
	}
	before := n.engine.Attached()
	n.hooks.Follow()
	n.retry.Until(ctx, "interfaces that are not to be guarded still are", "weir doctor",
		n.hooks.DetachOthers)
	n.hooks.LogNew(before)
	if len(before) == 0 {
		n.retry.Until(ctx, "the last resort is still in force", "weir doctor", kernel.OpenAll)
	}
	if !early {
		pods()
	}
	return nil
}

// nameRecordedPods gives the interfaces of pods of an earlier run the names that rules know them
// by, and returns the tables of their labels. It changes nothing else: whether a pod is complete is
// checked later.
func (n *Node) nameRecordedPods() map[string][]firewall.TableEntry {
	labels := map[string][]firewall.TableEntry{}
	if len(n.config.Settings.Pods.Ranges) == 0 {
		return labels
	}
	pods, err := pod.Recorded(n.config.Paths.Pods(), n.links.ByAlias, n.left.of)
	if err != nil {
		n.log.Warn("cannot read all records of pods", "err", err)
	}
	for _, p := range pods {
		n.links.AddPod(p.Index, p.Endpoint().Name)
		for key, value := range p.Labels {
			table := key + "=" + value
			for _, a := range p.Addrs {
				labels[table] = append(labels[table],
					firewall.TableEntry{Prefix: netip.PrefixFrom(a, a.BitLen())})
			}
		}
	}
	return labels
}

// takePods takes the pods of an earlier run over. Labels of pods that turn out to be gone are
// removed.
func (n *Node) takePods(ctx context.Context, labels map[string][]firewall.TableEntry) error {
	if err := n.beginPods(); err != nil || n.pods.Load() == nil {
		return err
	}
	living := n.pods.Load().labels.all()
	for table, members := range labels {
		for _, m := range members {
			if slices.Contains(living[table], m) {
				continue
			}
			if err := n.engine.SetTable(table, living[table]); err != nil {
				return err
			}
			break
		}
	}
	n.pods.Load().begin(ctx)
	n.routes.Changed(true) // those with an MTU of their own matter now
	return nil
}
