package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/rule"
)

// follow tells the engine what became of the host's interfaces and addresses.
func (n *Node) follow() error {
	n.following.Lock() // an older look at the interfaces must not be told after a newer one
	defer n.following.Unlock()
	if err := n.engine.SetInterfaces(n.links.interfaces()); err != nil {
		return err
	}
	return n.attach()
}

// routesChanged notes that the routes have to be told again.
func (n *Node) routesChanged() {
	select {
	case n.reroute <- struct{}{}:
	default:
	}
}

// followRoutes tells the engine the host's routes, if the rules in force ask about them.
func (n *Node) followRoutes() (err error) {
	n.book.view(func(_ ruleState, p *rule.Program) { err = n.tellRoutes(p) })
	return err
}

// tellRoutes tells the engine the host's routes, if the rules ask about them: there can be a million.
func (n *Node) tellRoutes(p *rule.Program) error {
	if p.Features&(rule.HasVerRevPath|rule.HasVerSrcReach) == 0 {
		return nil
	}
	routes, err := hostRoutes()
	if err != nil {
		return err
	}
	return n.engine.SetRoutes(routes)
}

// attach puts the hooks on every interface that is to be guarded and takes them off the others. An interface that refuses is a
// problem that the status shows; one that vanished meanwhile is none, and its going will be told.
func (n *Node) attach() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.links.interfaces()
	wanted := make(map[uint32]bool, len(all))
	for _, i := range all {
		if !n.config.Settings.guards(i.Name) || n.isTunnel(i.Name) {
			continue
		}
		wanted[i.Index] = true
		if _, on := n.attached[i.Index]; !on {
			n.attachLocked(i)
		}
	}
	var errs []error
	for index := range n.attached {
		if wanted[index] {
			continue
		}
		if err := n.engine.Detach(index); err != nil {
			errs = append(errs, fmt.Errorf("interface %d: %w", index, err))
		}
		delete(n.attached, index)
	}
	for index := range n.refused {
		if !wanted[index] {
			delete(n.refused, index)
		}
	}
	return errors.Join(errs...)
}

// detachOthers takes the hooks off interfaces that an earlier agent guarded and this one is not to guard. Pods have theirs from
// their own making.
func (n *Node) detachOthers() error {
	var errs []error
	for _, i := range n.links.interfaces() {
		if !n.config.Settings.guards(i.Name) && !strings.HasPrefix(i.Name, "pod:") {
			errs = append(errs, n.engine.Detach(i.Index))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) attachLocked(i firewall.Interface) {
	hook, err := n.engine.Attach(i.Index)
	if err == nil {
		n.attached[i.Index] = hook
		delete(n.refused, i.Index)
		n.log.Info("guarding", "interface", i.Name, "hook", hook)
		return
	}
	if n.refused[i.Index] == nil {
		n.log.Error("cannot guard", "interface", i.Name, "err", err)
	}
	n.refused[i.Index] = err
}

// interfaces lists what is guarded, and as problems what is not although it should be.
func (n *Node) interfaces() (guarded []api.Interface, problems []api.Problem) {
	n.mu.Lock()
	defer n.mu.Unlock()
	guarded = []api.Interface{}
	for _, i := range n.links.interfaces() {
		if hook, on := n.attached[i.Index]; on {
			guarded = append(guarded, api.Interface{Name: i.Name, Index: i.Index, Hook: hook})
		}
		if t := n.peers.tunnel.Load(); t != nil && t.device.Index() == int(i.Index) {
			guarded = append(guarded, api.Interface{Name: i.Name, Index: i.Index, Hook: "tunnel"})
		}
		if err := n.refused[i.Index]; err != nil {
			problems = append(problems, api.Problem{What: fmt.Sprintf("%s is not guarded: %v", i.Name, err), Advice: "weir doctor"})
		}
	}
	if len(guarded) == 0 {
		problems = append(problems, api.Problem{What: "no interface is guarded",
			Advice: fmt.Sprintf("none matches %q; see weir up --iface", n.config.Settings.Interfaces)})
	}
	return guarded, append(problems, n.problems...)
}

// status says how the node is.
func (n *Node) status() (api.Status, error) {
	s := api.Status{Version: api.Version, PID: os.Getpid(), Since: n.began, TakenOver: n.engine.TakenOver(), Pods: n.pods != nil,
		StatesMax: n.config.Settings.Engine.MaxStates, Reasons: map[string]uint64{}, Default: "allow"}
	s.Interfaces, s.Problems = n.interfaces()
	s.Problems = append(s.Problems, n.peers.problems()...)
	n.book.view(func(r ruleState, _ *rule.Program) {
		s.Rules, s.Source = len(r.set.Rules), r.source
		if r.strict {
			s.Default = "deny"
		}
	})
	if name, left, on := n.book.trialLeft(); on {
		s.Trial = &api.Trial{Name: name, LeftSeconds: toSeconds(left.Nanoseconds())}
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
	if s.Table, err = n.stateTable(); err != nil {
		return s, err
	}
	n.mu.Lock()
	s.Adopted = n.adopted
	n.mu.Unlock()
	s.Healthy = len(s.Problems) == 0
	return s, nil
}
