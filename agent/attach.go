package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/rule"
)

// follow passes the host's interfaces and addresses to the engine and attaches the hooks. It runs a
// few times for each pod that comes or goes, and there may be thousands, so it looks only at what
// has changed.
func (n *Node) follow() error {
	n.following.Lock() // an older list must not replace a newer one
	defer n.following.Unlock()
	if n.held {
		return nil
	}
	now := n.links.Interfaces()
	changed, gone := firewall.Changes(n.followed, now)
	remade := n.links.takeRemade()
	if len(changed)+len(gone) > 0 {
		if err := n.engine.SetInterfaces(now); err != nil {
			n.links.keepRemade(remade)
			return err
		}
		n.followed = now
	}
	n.reattach(remade)
	return n.attach(changed, gone)
}

// reattach attaches the hooks again on interfaces that may have been replaced by others with the
// same index.
func (n *Node) reattach(remade map[int]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.followed {
		if _, on := n.attached[i.Index]; on && remade[int(i.Index)] {
			n.attachLocked(i)
		}
	}
}

// routesChanged asks for the routes to be read again. mtu means that routes with an MTU of their
// own may have changed.
func (n *Node) routesChanged(mtu bool) {
	if mtu {
		n.remeasure.Store(true)
	}
	select {
	case n.reroute <- struct{}{}:
	default:
	}
}

// followRoutes gives the engine the host's routes, if the rules in force ask about them, and the
// routes with an MTU of their own, if there may be pods.
func (n *Node) followRoutes() (err error) {
	n.rules.View(func(_ rules.Version, p *rule.Program) { err = n.setRoutes(p) })
	if n.pods.Load() != nil && n.remeasure.Swap(false) {
		mtus := n.setRouteMTUs()
		if mtus != nil {
			n.remeasure.Store(true)
		}
		err = errors.Join(err, mtus)
	}
	return err
}

func (n *Node) setRouteMTUs() error {
	conn, err := routes.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	routes, err := conn.RoutesWithMTU()
	if err != nil {
		return err
	}
	var all []kernel.RouteMTU
	for _, r := range routes {
		all = append(all, kernel.RouteMTU{Dst: r.Dst, MTU: uint32(r.MTU)})
	}
	return n.engine.SetRouteMTUs(all)
}

// setRoutes gives the engine the host's routes, if the rules ask about them: there can be a
// million.
func (n *Node) setRoutes(p *rule.Program) error {
	if p.Features&(rule.HasVerRevPath|rule.HasVerSrcReach) == 0 {
		return nil
	}
	routes, err := routes.List()
	if err != nil {
		return err
	}
	return n.engine.SetRoutes(routes)
}

// attach puts the hooks on those of the changed interfaces that are to be guarded, tries again
// those that failed, and takes the hooks off the others. An interface that cannot be guarded is a
// problem in the status. One that vanished in the meantime is not: its removal will be reported.
// When the kernel does not answer for one in time, the others wait for the next pass.
func (n *Node) attach(changed, gone []firewall.Interface) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	var late error
	for _, i := range gone {
		errs = append(errs, n.detachLocked(i))
	}
	for _, i := range changed {
		if !n.config.Settings.guards(i.Name) || n.isTunnel(i.Name) {
			errs = append(errs, n.detachLocked(i))
		} else if _, on := n.attached[i.Index]; !on && late == nil {
			late = n.attachLocked(i)
		} else if !on {
			n.refused[i.Index] = late
		}
	}
	for index := range n.refused {
		at, there := slices.BinarySearchFunc(n.followed, firewall.Interface{Index: index},
			firewall.ByIndex)
		if there && late == nil && !slices.ContainsFunc(changed, func(i firewall.Interface) bool {
			return i.Index == index
		}) {
			late = n.attachLocked(n.followed[at])
		}
	}
	return errors.Join(errs...)
}

// detachLocked takes the hooks off an interface, if they are on it.
func (n *Node) detachLocked(i firewall.Interface) error {
	delete(n.refused, i.Index)
	if _, on := n.attached[i.Index]; !on {
		return nil
	}
	delete(n.attached, i.Index)
	if err := n.engine.Detach(i.Index); err != nil {
		return fmt.Errorf("interface %s: %w", i.Name, err)
	}
	return nil
}

// detachOthers takes the hooks off interfaces that an earlier agent guarded and this one is not to
// guard. Pods have theirs from their own making.
func (n *Node) detachOthers() error {
	var errs []error
	for _, i := range n.links.Interfaces() {
		if !n.config.Settings.guards(i.Name) && !strings.HasPrefix(i.Name, "pod:") {
			errs = append(errs, n.engine.Detach(i.Index))
		}
	}
	return errors.Join(errs...)
}

// attachLocked puts the hooks on an interface. late is set when the kernel did not answer in time.
func (n *Node) attachLocked(i firewall.Interface) (late error) {
	hook, err := n.engine.Attach(i.Index)
	if err == nil {
		if n.attached[i.Index] != hook {
			n.log.Info("guarding", "interface", i.Name, "hook", hook)
		}
		n.attached[i.Index] = hook
		delete(n.refused, i.Index)
		return nil
	}
	delete(n.attached, i.Index)
	if n.refused[i.Index] == nil {
		n.log.Error("cannot guard", "interface", i.Name, "err", err)
	}
	n.refused[i.Index] = err
	if errors.Is(err, unix.EAGAIN) {
		return err
	}
	return nil
}

// interfaces lists what is guarded, and as problems what is not although it should be.
func (n *Node) interfaces() (guarded []api.Interface, problems []api.Problem) {
	n.mu.Lock()
	defer n.mu.Unlock()
	guarded = []api.Interface{}
	for _, i := range n.links.Interfaces() {
		if hook, on := n.attached[i.Index]; on {
			guarded = append(guarded, api.Interface{Name: i.Name, Index: i.Index, Hook: hook})
		}
		if t := n.peers.tunnel.Load(); t != nil && t.device.Index() == int(i.Index) {
			guarded = append(guarded, api.Interface{Name: i.Name, Index: i.Index, Hook: "tunnel"})
		}
		if err := n.refused[i.Index]; err != nil {
			problems = append(problems, api.Problem{What: fmt.Sprintf("%s is not guarded: %v",
				i.Name, err), Advice: "weir doctor"})
		}
	}
	if len(guarded) == 0 {
		problems = append(problems, api.Problem{What: "no interface is guarded",
			Advice: fmt.Sprintf("none matches %q; see weir up --iface",
				n.config.Settings.Interfaces)})
	}
	return guarded, append(problems, n.problems.All()...)
}

// status returns the state of the node.
func (n *Node) status() (api.Status, error) {
	s := api.Status{Version: api.Version, PID: os.Getpid(), Since: n.began,
		TakenOver: n.engine.TakenOver(), Pods: len(n.config.Settings.Pods.Ranges) > 0,
		StatesMax: n.config.Settings.Engine.MaxStates, Reasons: map[string]uint64{},
		Default: "allow"}
	s.Interfaces, s.Problems = n.interfaces()
	s.Problems = append(s.Problems, n.peers.problems()...)
	if n.pods.Load() != nil {
		s.Problems = append(s.Problems, n.pods.Load().problems()...)
	}
	n.rules.View(func(r rules.Version, _ *rule.Program) {
		s.Rules, s.Source = len(r.Set.Rules), r.Source
		if r.Strict {
			s.Default = "deny"
		}
	})
	if name, left, on := n.rules.TrialLeft(); on {
		s.Trial = &api.Trial{Name: name, LeftSeconds: clock.Seconds(left.Nanoseconds())}
	}
	for _, err := range n.engine.States() {
		if err != nil {
			return s, err
		}
		s.States++
	}
	decisions, err := n.engine.Decisions()
	if err != nil {
		return s, err
	}
	for reason, packets := range firewall.ByReason(decisions) {
		if packets > 0 && reason != firewall.ReasonRule {
			s.Reasons[reason.String()] = packets
		}
	}
	if s.Table, err = n.observer.Table(); err != nil {
		return s, err
	}
	n.mu.Lock()
	s.Adopted = n.adopted
	n.mu.Unlock()
	s.Healthy = len(s.Problems) == 0
	return s, nil
}
