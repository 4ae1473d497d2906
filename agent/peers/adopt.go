package peers

import (
	"github.com/weirnet/weir/agent/adopt"
	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/program"
)

// Adopt makes states of open connections that go through the tunnel, if there is one, whose engine
// runs the Program.
func (p *Service) Adopt(program *program.Program) error {
	if t := p.tunnel.Load(); t != nil && t.engine != nil {
		return t.adopt(program)
	}
	return nil
}

// adopt makes states of the flows that the kernel's engine or a socket of this host has and that go
// through the tunnel. The states of an agent that died are gone, the connections are not. p is what
// the engine runs.
func (t *tunnel) adopt(p *program.Program) error {
	var states []firewall.State
	weir := uint32(t.device.Index())
	for s, err := range t.config.Engine.KernelStates() {
		if err != nil {
			return err
		}
		var hook firewall.Hook
		switch {
		case t.has(s.To.Addr()):
			hook = firewall.Hook{Dir: firewall.Out, Xmit: weir}
		case t.has(s.From.Addr()):
			hook = firewall.Hook{Dir: firewall.In, Recv: weir}
		default:
			continue
		}
		if one, ok := t.adoptable(p, hook, s); ok {
			states = append(states, one)
		}
	}
	local, err := t.sockets(p, weir)
	if err != nil {
		return err
	}
	_, err = t.engine.Adopt(append(states, local...), clock.Now())
	return err
}

// sockets finds the host's own connections that go through the tunnel.
func (t *tunnel) sockets(p *program.Program, weir uint32) ([]firewall.State, error) {
	open, err := nl.TCPSockets(nil)
	if err != nil {
		return nil, err
	}
	var states []firewall.State
	for _, candidates := range adopt.Openings(open) {
		for _, o := range candidates {
			hook, remote := firewall.Hook{Dir: firewall.Out, Xmit: weir}, o.To
			if o.In {
				hook, remote = firewall.Hook{Dir: firewall.In, Recv: weir}, o.From
			}
			if !t.has(remote.Addr()) {
				continue
			}
			if one, ok := t.adoptable(p, hook,
				firewall.State{Proto: 6, From: o.From, To: o.To}); ok {
				states = append(states, one)
				break
			}
		}
	}
	return states, nil
}

// adoptable returns the state that the rules would have created for a flow.
func (t *tunnel) adoptable(p *program.Program, hook firewall.Hook, s firewall.State) (
	firewall.State,
	bool) {
	e := t.engine.Check(&firewall.Input{Hook: hook, Now: clock.Now()}, s.Proto,
		s.From, s.To)
	if !e.Verdict.Pass {
		return s, false
	}
	return adopt.State(p, e, hook, s)
}
