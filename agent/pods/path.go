package pods

import (
	"github.com/weirnet/weir/internal/forward"
)

// path adapts the engine to forward.Forwarder. A pod's host end is an interface like any other,
// guarded from its first packet on, and named "pod:NAME" to the rules; the kernel engine also gets
// the pod itself, for its fast path.
type path struct{ *Service }

func (p path) SetEndpoint(e forward.Endpoint) error {
	if err := p.config.Hooks.AddPod(e.Index, e.Name); err != nil {
		return err
	}
	return p.config.Engine.SetEndpoint(e)
}

func (p path) DeleteEndpoint(index uint32) error {
	p.config.Links.ExpectRemoval(index)
	return p.config.Engine.DeleteEndpoint(index)
}

func (p path) Endpoints() ([]forward.EndpointCounters, error) {
	return p.config.Engine.Endpoints()
}

func (p path) SetPublished(ports []forward.Published) error {
	return p.config.Engine.SetPublished(ports)
}

func (p path) SetMasquerade(m forward.Masquerade) error {
	return p.config.Engine.SetMasquerade(m)
}
