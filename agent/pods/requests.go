package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
)

// Attach gives a container its network. If the client disconnected in the meantime, a new
// attachment is rolled back.
func (s *Service) Attach(ctx context.Context, spec pod.Spec) (api.Pod, error) {
	manager, end, err := s.change()
	if err != nil {
		return api.Pod{}, err
	}
	defer end()
	if err := s.config.Links.CheckRanges(s.config.Settings.Ranges, s.config.Tunnel); err != nil &&
		!spec.ExternalIPAM {
		return api.Pod{}, fmt.Errorf("pod %s: %w", spec.Name, err)
	}
	if err := s.checkPublished(ctx, &spec); err != nil {
		return api.Pod{}, err
	}
	p, made, err := manager.Attach(ctx, spec)
	if err != nil {
		return api.Pod{}, err
	}
	if made {
		s.config.Log.Info("pod attached", "pod", p.Name, "addresses", p.Addrs)
	}
	if err := ctx.Err(); made && err != nil {
		return api.Pod{}, errors.Join(err,
			s.detach(context.WithoutCancel(ctx), p.Container, p.IfName, false))
	}
	view := podView(p)
	view.Version = api.Version
	view.Nameservers = s.nameservers(manager, p.Addrs)
	return view, nil
}

// Detach takes the network of a container away.
func (s *Service) Detach(ctx context.Context, r api.Detach) (api.Done, error) {
	_, end, err := s.change()
	if errors.Is(err, errNone) {
		return api.Done{Version: api.Version}, s.noRecords()
	}
	if err != nil {
		return api.Done{}, err
	}
	defer end()
	return api.Done{Version: api.Version}, s.detach(ctx, r.Container, r.IfName, r.NoWait)
}

// detach takes a pod away, for a request that is counted in changes. It is idempotent: an unknown
// pod is not an error. It does not look for a pod by its name. A runtime may ask again when the
// container has ended, and another pod may have its id as a name by then.
func (s *Service) detach(ctx context.Context, container, ifName string, noWait bool) error {
	manager, err := s.pods()
	if err != nil {
		return err
	}
	found, ready := manager.Get(container, ifName)
	if !ready {
		return manager.Detach(ctx, container, ifName) // it may be under way; this waits for it
	}
	away := manager.Detach
	if noWait {
		away = manager.DetachAsync
	}
	if err := away(ctx, container, ifName); err != nil {
		return err
	}
	s.config.Log.Info("pod detached", "pod", found.Name)
	return nil
}

// noRecords returns an error if a node without ranges has pods that are not taken over yet. Without
// any, what a runtime wants to be gone is: it asks also after an attach that was refused.
func (s *Service) noRecords() error {
	if recorded, err := pod.AnyRecord(s.config.Dir); err != nil || recorded {
		return errors.Join(err, errLater)
	}
	return nil
}

// Label changes the labels of a container, of all its interfaces or of the named one.
func (s *Service) Label(ctx context.Context, r api.Label) (api.Pods, error) {
	manager, end, err := s.change()
	if err != nil {
		return api.Pods{}, err
	}
	defer end()
	changed, err := manager.Label(ctx, r.Container, r.IfName, r.Set, r.Remove)
	if err != nil {
		return api.Pods{}, err
	}
	list := api.Pods{Version: api.Version, Pods: []api.Pod{}}
	for _, p := range changed {
		s.config.Log.Info("pod labelled", "pod", p.Name, "labels", p.Labels)
		list.Pods = append(list.Pods, podView(p))
	}
	return list, nil
}

// Check compares the network of a container with what Attach made.
func (s *Service) Check(r api.Check) (api.Done, error) {
	manager, err := s.pods()
	if err != nil {
		return api.Done{}, err
	}
	return api.Done{Version: api.Version}, manager.Check(r.Container, r.IfName, r.Addrs)
}

// Attached reports whether there is anything of a container's network.
func (s *Service) Attached(r api.Attached) (api.IsAttached, error) {
	manager, err := s.pods()
	if errors.Is(err, errNone) {
		return api.IsAttached{Version: api.Version}, s.noRecords()
	}
	if err != nil {
		return api.IsAttached{}, err
	}
	return api.IsAttached{Version: api.Version,
		Attached: manager.Holds(r.Container, r.IfName)}, nil
}

// GC is the garbage collection of a runtime. It does not touch other networks, Docker's, and
// what was attached by hand.
func (s *Service) GC(ctx context.Context, r api.GC) (api.Done, error) {
	manager, end, err := s.change()
	if errors.Is(err, errNone) {
		return api.Done{Version: api.Version}, s.noRecords()
	}
	if err != nil {
		return api.Done{}, err
	}
	defer end()
	if r.Network == "" {
		return api.Done{}, errors.New("the network is missing: name it as it was named when its " +
			"pods were attached")
	}
	var errs []error
	for _, p := range manager.List() {
		if p.Network == r.Network && !slices.Contains(r.Attachments, p.Key) {
			errs = append(errs, s.detach(ctx, p.Container, p.IfName, false))
		}
	}
	return api.Done{Version: api.Version},
		errors.Join(append(errs, manager.Sweep(ctx))...)
}

// List returns the pods, oldest first.
func (s *Service) List() (api.Pods, error) {
	list := api.Pods{Version: api.Version, Pods: []api.Pod{}}
	manager := s.manager.Load()
	if manager == nil {
		return list, nil
	}
	counters, err := s.config.Engine.Endpoints()
	if err != nil {
		return list, err
	}
	byIndex := map[uint32]forward.EndpointCounters{}
	for _, c := range counters {
		byIndex[c.Index] = c
	}
	for _, p := range manager.List() {
		view, c := podView(p), byIndex[p.Index]
		view.Packets = [2]uint64{c.PacketsIn, c.PacketsOut}
		view.Bytes = [2]uint64{c.BytesIn, c.BytesOut}
		view.Drops = [2]uint64{c.DropsIn, c.DropsOut}
		list.Pods = append(list.Pods, view)
	}
	return list, nil
}
