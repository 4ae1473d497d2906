package agent

import (
	"errors"

	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/agent/watch"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// joinTunnel gives a new engine of the tunnel all that the kernel engine got, and registers it for
// all later changes.
func (n *Node) joinTunnel(e *soft.Engine) (err error) {
	n.rules.View(func(r rules.Version, p *program.Program) {
		for name := range r.Set.Tables {
			err = errors.Join(err, e.SetTable(name, r.Set.Entries(name)))
		}
		// a pod, or a shared member, that comes now reaches both engines
		n.shared.View(func(tables map[string]rule.Table) {
			for name, table := range tables {
				err = errors.Join(err, e.SetTable(name, table.Entries()))
			}
			err = errors.Join(err, n.joinLabels(e, p))
		})
	})
	return err
}

// joinLabels gives a new engine of the tunnel what is not of the rules, and registers it.
func (n *Node) joinLabels(e *soft.Engine, p *program.Program) (err error) {
	n.pods.ViewLabels(func(tables map[string][]rule.TableEntry) {
		for name, members := range tables {
			err = errors.Join(err, e.SetTable(name, members))
		}
		n.hooks.View(func(ifs []firewall.Interface) {
			err = errors.Join(err, e.SetInterfaces(ifs))
			if p.Features&(program.HasVerRevPath|program.HasVerSrcReach) != 0 {
				routes, bad := routes.List()
				err = errors.Join(err, bad, e.SetRoutes(routes))
			}
			if err = errors.Join(err, e.Load(p)); err == nil {
				n.engine.SetTunnel(e)
			}
		})
	})
	return err
}

// prepare runs before rules are put in force.
func (n *Node) prepare(p *program.Program) error {
	if n.cluster != nil && n.cluster.HasCopy() {
		if err := n.pods.ClearLabels(p.Tables); err != nil {
			return err
		}
	}
	if err := n.pods.PlaceLabels(p.Tables); err != nil {
		return err
	}
	if err := n.nat.CheckRules(p, n.config.Settings.Pods.Ranges); err != nil {
		return err
	}
	return n.routes.SetForRules(p)
}

// loaded runs after each change of the rules in force.
func (n *Node) loaded(old, new *program.Program, set *rule.Ruleset) {
	if err := n.shared.Follow(set); err != nil {
		n.problems.Add(err.Error(), "restart the agent: systemctl restart weir")
	}
	if err := n.nat.SetRules(new.NATs); err != nil {
		n.problems.Add("cannot enable IPv4 forwarding for rules with nat: "+err.Error(),
			"enable it by hand: sysctl -w net.ipv4.ip_forward=1")
	}
	if err := n.routes.RemoveUnusedFwdRouting(new); err != nil {
		n.problems.Add("cannot delete a routing rule of rules with fwd: "+err.Error(),
			"look at the routing rules: ip rule; ip -6 rule")
	}
	if n.cluster != nil && n.cluster.HasCopy() {
		if err := n.shared.Clear(new.Tables, set.Tables); err != nil {
			n.problems.Add(err.Error(), "restart the agent: systemctl restart weir")
		}
	}
	n.adoption.Loaded(old, new, set)
}

// clearUnfilled empties tables that the rules in force ask about and that the store does not fill.
func (n *Node) clearUnfilled() (err error) {
	n.rules.View(func(r rules.Version, p *program.Program) {
		if p != nil {
			err = errors.Join(n.pods.ClearLabels(p.Tables), n.shared.Clear(p.Tables, r.Set.Tables))
		}
	})
	return err
}

// followRoutes gives the engine the host's routes, if the rules in force ask about them, and the
// routes with an MTU of their own, if there may be pods.
func (n *Node) followRoutes() (err error) {
	if n.routes.TakeLocal() {
		n.followLocal()
	}
	n.rules.View(func(_ rules.Version, p *program.Program) { err = n.routes.SetForRules(p) })
	if n.pods.TakenOver() {
		err = errors.Join(err, n.routes.SetMTUs())
	}
	return err
}

// followLocal reads the local routes again.
func (n *Node) followLocal() {
	const about = "local routes"
	if err := n.links.FollowLocal(); err != nil {
		n.problems.Set(about, err.Error(), "weir doctor; until then me has those read before")
		return
	}
	n.problems.Solved(about)
}

// reload reads the rule file again.
func (n *Node) reload() error {
	watch.Notify("RELOADING=1")
	defer watch.Notify("READY=1")
	return n.rules.Reload()
}
