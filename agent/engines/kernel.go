package engines

import (
	"context"
	"iter"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/forward"
)

// What concerns the kernel engine alone: hooks, pins, the fast path of pods, and the events and
// figures of its tables. Each method is listed, so that a new method of the kernel engine is not
// used for both engines by accident.

var _ forward.Forwarder = (*Pair)(nil)

// Attach puts the hooks on an interface.
func (e *Pair) Attach(index uint32) (hook string, err error) { return e.kernel.Attach(index) }

// Detach takes the hooks off an interface.
func (e *Pair) Detach(index uint32) error { return e.kernel.Detach(index) }

// Attached returns the interfaces with hooks.
func (e *Pair) Attached() []uint32 { return e.kernel.Attached() }

// Hooked returns the interfaces with hooks, of an earlier layout, too.
func (e *Pair) Hooked() ([]uint32, error) { return e.kernel.Hooked() }

// RemovedHooks returns the interfaces of which another program has removed a hook.
func (e *Pair) RemovedHooks() ([]uint32, error) { return e.kernel.RemovedHooks() }

// KeepLocal puts the hook of the loopback back if another program has removed it, and reports
// whether one has.
func (e *Pair) KeepLocal() (removed bool, err error) { return e.kernel.KeepLocal() }

// Foreign returns the programs of others at the hooks.
func (e *Pair) Foreign() ([]kernel.Foreign, error) { return e.kernel.Foreign() }

// Guarded reports whether the engine that was taken over had evaluated packets of an interface.
func (e *Pair) Guarded() bool { return e.kernel.Guarded() }

// TakenOver reports whether the engine continues an earlier one's enforcement.
func (e *Pair) TakenOver() bool { return e.kernel.TakenOver() }

// Replaces reports whether an engine of another layout, or of other sizes, guards interfaces until
// ours does.
func (e *Pair) Replaces() bool { return e.kernel.Replaces() }

// Migrated returns how many states came from an earlier layout.
func (e *Pair) Migrated() int { return e.kernel.Migrated() }

// LabelsLeft returns the tables of labels of an earlier engine that hold an address.
func (e *Pair) LabelsLeft(a netip.Addr) ([]string, error) { return e.kernel.LabelsLeft(a) }

// LabelsWithoutPlace returns those of the tables of labels that have no place, if as many labels as
// reserve are to have one after them.
func (e *Pair) LabelsWithoutPlace(labels []string, reserve int) ([]string, error) {
	return e.kernel.LabelsWithoutPlace(labels, reserve)
}

// Adopt makes states of connections that are open already; package peers does so for the tunnel.
func (e *Pair) Adopt(states []firewall.State) (int, error) { return e.kernel.Adopt(states) }

// SetUppers sets the upper devices that evaluate frames of their lower ones.
func (e *Pair) SetUppers(all []kernel.Upper) error { return e.kernel.SetUppers(all) }

// SetNextHops sets how packets get to the next hops of rules with fwd.
func (e *Pair) SetNextHops(hops []kernel.NextHop) error { return e.kernel.SetNextHops(hops) }

// SetRouteMTUs sets the routes that have an MTU of their own.
func (e *Pair) SetRouteMTUs(routes []kernel.RouteMTU) error {
	return e.kernel.SetRouteMTUs(routes)
}

// SetNetfilter sets whether netfilter may translate what goes from or to pods.
func (e *Pair) SetNetfilter(translates bool) error { return e.kernel.SetNetfilter(translates) }

// SetStack sets the IPsec policies for forwarded packets, and whether the host has routing rules
// that the fast path does not respect.
func (e *Pair) SetStack(routing bool, policies []kernel.Policy) error {
	return e.kernel.SetStack(routing, policies)
}

// SetQdiscLinks sets at which interfaces of pods packets go through queueing disciplines.
func (e *Pair) SetQdiscLinks(indexes []uint32) error { return e.kernel.SetQdiscLinks(indexes) }

// SetEndpoint implements forward.Forwarder.
func (e *Pair) SetEndpoint(p forward.Endpoint) error { return e.kernel.SetEndpoint(p) }

// DeleteEndpoint implements forward.Forwarder. The next pod with an address of this one gets no
// state of it, in the tunnel either.
func (e *Pair) DeleteEndpoint(index uint32) error {
	if t := e.tunnel.Load(); t != nil {
		own := e.kernel.EndpointAddrs(index)
		if _, err := t.DeleteStates(func(s firewall.State) bool {
			return slices.Contains(own, s.From.Addr()) || slices.Contains(own, s.To.Addr())
		}); err != nil {
			return err
		}
	}
	return e.kernel.DeleteEndpoint(index)
}

// EndpointAddrs returns the addresses of the pod with a host end.
func (e *Pair) EndpointAddrs(index uint32) []netip.Addr { return e.kernel.EndpointAddrs(index) }

// Endpoints implements forward.Forwarder.
func (e *Pair) Endpoints() ([]forward.EndpointCounters, error) { return e.kernel.Endpoints() }

// SetPublished implements forward.Forwarder.
func (e *Pair) SetPublished(ports []forward.Published) error {
	return e.kernel.SetPublished(ports)
}

// SetForwards replaces the forwarded ports.
func (e *Pair) SetForwards(ports []forward.Published) error { return e.kernel.SetForwards(ports) }

// SetServices replaces the services.
func (e *Pair) SetServices(all []forward.Service) error { return e.kernel.SetServices(all) }

// Services returns what the pods of the services have counted.
func (e *Pair) Services() (map[forward.ServiceKey]map[netip.AddrPort]forward.BackendCounters,
	error) {
	return e.kernel.Services()
}

// SeenParts returns how many parts of the flows of services are seen.
func (e *Pair) SeenParts() (map[forward.ServiceKey]int, error) { return e.kernel.SeenParts() }

// SetMasquerade implements forward.Forwarder.
func (e *Pair) SetMasquerade(m forward.Masquerade) error { return e.kernel.SetMasquerade(m) }

// Watch calls f for the kernel engine's events until ctx ends; the tunnel's engine has a callback.
func (e *Pair) Watch(ctx context.Context, f func(firewall.Event)) error {
	return e.kernel.Watch(ctx, f)
}

// Capture calls f with the kernel engine's frames; watch.Captures.WrapWorker adds the tunnel's. nil
// ends it.
func (e *Pair) Capture(f func(*firewall.Captured)) error { return e.kernel.Capture(f) }

// KernelDecisions are those of the kernel engine alone.
func (e *Pair) KernelDecisions() (map[firewall.Decision]firewall.Count, error) {
	return e.kernel.Decisions()
}

// KernelStates are those of the kernel engine alone.
func (e *Pair) KernelStates() iter.Seq2[firewall.State, error] { return e.kernel.States() }

// Stats returns the figures of the kernel engine's state table, and the buckets of both engines.
func (e *Pair) Stats() (kernel.Stats, error) {
	s, err := e.kernel.Stats()
	if t := e.tunnel.Load(); t != nil {
		s.RatesFull += t.RatesFull()
	}
	return s, err
}

// Close closes the kernel engine; what it pinned keeps enforcing. The tunnel closes its own.
func (e *Pair) Close() error { return e.kernel.Close() }
