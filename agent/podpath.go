package agent

import (
	"github.com/weirnet/weir/firewall"
)

// podPath adapts the engine to pod.Path. A pod's host end is an interface like any other, guarded
// from its first packet on, and named "pod:NAME" to the rules; the kernel engine also gets the pod
// itself, for its fast path.
type podPath struct{ node *Node }

func (p *podPath) SetEndpoint(e firewall.Endpoint) error {
	if err := p.node.hooks.AddPod(e.Index, e.Name); err != nil {
		return err
	}
	return p.node.engine.SetEndpoint(e)
}

func (p *podPath) DeleteEndpoint(index uint32) error {
	p.node.links.LosePod(index)
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
