package pods

import (
	"github.com/weirnet/weir/internal/forward"
)

// path is the engine for the pods. A pod's host end is an interface like any other, guarded from
// its first packet on, and named "pod:NAME" to the rules; the kernel engine also gets the pod
// itself, for its fast path.
type path struct {
	forward.Forwarder
	hooks Hooks
	links Links
}

func (p path) SetEndpoint(e forward.Endpoint) error {
	if err := p.hooks.AddPod(e.Index, e.Name); err != nil {
		return err
	}
	return p.Forwarder.SetEndpoint(e)
}

func (p path) DeleteEndpoint(index uint32) error {
	p.links.ExpectRemoval(index)
	return p.Forwarder.DeleteEndpoint(index)
}
