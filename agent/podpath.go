package agent

import (
	"fmt"

	"github.com/weirnet/weir/firewall"
)

// podPath adapts the engine to pod.Path. A pod's host end is an interface like any other, guarded
// from its first packet on, and named "pod:NAME" to the rules; the kernel engine also gets the pod
// itself, for its fast path.
type podPath struct{ node *Node }

func (p *podPath) forwarder() (firewall.Forwarder, bool) {
	f, ok := any(p.node.engine).(firewall.Forwarder)
	return f, ok
}

func (p *podPath) SetEndpoint(e firewall.Endpoint) error {
	n := p.node
	n.links.addPod(e.Index, e.Name)
	if err := n.follow(); err != nil {
		return err
	}
	n.mu.Lock()
	err := n.refused[e.Index]
	n.mu.Unlock()
	if err != nil {
		return fmt.Errorf("guard %s: %w", e.Name, err)
	}
	if f, ok := p.forwarder(); ok {
		return f.SetEndpoint(e)
	}
	return nil
}

func (p *podPath) DeleteEndpoint(index uint32) error {
	p.node.links.losePod(index)
	if f, ok := p.forwarder(); ok {
		return f.DeleteEndpoint(index)
	}
	return nil
}

func (p *podPath) Endpoints() ([]firewall.EndpointCounters, error) {
	if f, ok := p.forwarder(); ok {
		return f.Endpoints()
	}
	return nil, nil
}

func (p *podPath) SetPublished(ports []firewall.Published) error {
	if f, ok := p.forwarder(); ok {
		return f.SetPublished(ports)
	}
	if len(ports) > 0 {
		return fmt.Errorf("ports cannot be published: the engine translates no addresses")
	}
	return nil
}

func (p *podPath) SetMasquerade(m firewall.Masquerade) error {
	if f, ok := p.forwarder(); ok {
		return f.SetMasquerade(m)
	}
	return nil
}
