package agent

import (
	"fmt"

	"github.com/weirnet/weir/firewall"
)

// podPath adapts the engine to pod.Path. A pod's host end is an interface like any other, guarded
// from its first packet on, and named "pod:NAME" to the rules; the kernel engine also gets the pod
// itself, for its fast path.
type podPath struct{ node *Node }

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
	return n.engine.SetEndpoint(e)
}

func (p *podPath) DeleteEndpoint(index uint32) error {
	p.node.links.losePod(index)
	return p.node.engine.DeleteEndpoint(index)
}

func (p *podPath) Endpoints() ([]firewall.EndpointCounters, error) {
	return p.node.engine.Endpoints()
}

func (p *podPath) SetPublished(ports []firewall.Published) error {
	return p.node.engine.SetPublished(ports)
}

func (p *podPath) SetMasquerade(m firewall.Masquerade) error {
	return p.node.engine.SetMasquerade(m)
}
