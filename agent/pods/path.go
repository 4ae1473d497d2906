package pods

import (
	"github.com/weirnet/weir/internal/forward"
)

// path is the engine for the pods. A pod's host end is an interface like any other, guarded from
// its first packet on, and named "pod:NAME" to the rules. The kernel engine also gets the pod
// itself, for its fast path.
type path struct {
	engine forward.Forwarder
	hooks  Hooks
	links  Links
}

func (p path) SetEndpoint(e forward.Endpoint) error {
	if err := p.hooks.AddPod(e.Index, e.Name); err != nil {
		return err
	}
	return p.engine.SetEndpoint(e)
}

func (p path) DeleteEndpoint(index uint32) error {
	p.links.ExpectRemoval(index)
	return p.engine.DeleteEndpoint(index)
}

func (p path) Endpoints() ([]forward.EndpointCounters, error) { return p.engine.Endpoints() }

func (p path) SetPublished(ports []forward.Published) error { return p.engine.SetPublished(ports) }

func (p path) SetMasquerade(m forward.Masquerade) error { return p.engine.SetMasquerade(m) }
