package pods

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/pod"
	"github.com/weirnet/weir/rule"
)

// NameRecorded gives the interfaces of pods of an earlier run the names that rules know them by,
// and the engine the tables of their labels. It does so also on a host that has no ranges any more:
// rules about pods that still run stay in force. It returns how many labels these are, and changes
// nothing else: whether a pod is complete is checked by Begin.
func (s *Service) NameRecorded() (labels int, err error) {
	recorded := map[string][]rule.TableEntry{}
	pods, err := pod.ReadRecords(s.config.Dir, s.config.Links.ByAlias, s.left.of)
	if err != nil {
		s.config.Log.Warn("cannot read all records of pods", "err", err)
	}
	s.recorded = pods
	for _, p := range pods {
		s.config.Links.AddPod(p.Index, p.Endpoint().Name)
		for key, value := range p.Labels {
			table := key + "=" + value
			for _, a := range p.Addrs {
				recorded[table] = append(recorded[table],
					rule.TableEntry{Prefix: netip.PrefixFrom(a, a.BitLen())})
			}
		}
	}
	return len(recorded), s.labels.record(recorded)
}

// Networks returns the ranges of the settings and the addresses of pods outside of them: of pods of
// earlier ranges, or with another IPAM. Until the pods of an earlier run are taken over these are
// those that NameRecorded found.
func (s *Service) Networks() []netip.Prefix {
	all := slices.Clone(s.config.Settings.Ranges)
	pods := s.recorded
	if s.TakenOver() {
		pods = s.list()
	}
	for _, p := range pods {
		for _, a := range p.Addrs {
			if !s.InRange(a) {
				all = append(all, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return all
}

// Begin takes over the pods of an earlier run, and from then on removes pods whose namespace or
// interface is gone, with their labels. After an error it may be called again.
func (s *Service) Begin(ctx context.Context) error {
	if err := s.takeOver(); err != nil || s.manager.Load() == nil {
		return err
	}
	living := s.labels.all()
	for table, members := range s.labels.recorded {
		for _, m := range members {
			if slices.Contains(living[table], m) {
				continue
			}
			if err := s.config.Engine.SetTable(table, living[table]); err != nil {
				return err
			}
			break
		}
	}
	s.watchInBackground(ctx)
	return nil
}

// takeOver takes over the pods of an earlier run and registers them with the engine. Without ranges
// in the settings any more none is added, and those that are there can go.
func (s *Service) takeOver() error {
	set := s.config.Settings
	if len(set.Ranges) == 0 {
		recorded, err := pod.AnyRecord(s.config.Dir)
		if err == nil && !recorded {
			s.nowKnown()
		}
		if err != nil || !recorded {
			return err
		}
	}
	if s.manager.Load() == nil {
		if err := s.config.Links.RangesFree(set.Ranges, s.config.Tunnel); err != nil {
			return err
		}
		four := slices.ContainsFunc(set.Ranges, func(r netip.Prefix) bool { return r.Addr().Is4() })
		six := slices.ContainsFunc(set.Ranges, func(r netip.Prefix) bool { return r.Addr().Is6() })
		if err := s.config.PrepareForwarding(four, six); err != nil {
			s.config.Problems.Add("the kernel's settings before Weir are not recorded: "+
				err.Error(), "weir down will leave net.ipv4.ip_forward as it is then")
		}
		m, err := pod.New(pod.Config{Dir: s.config.Dir, Ranges: set.Ranges, MTU: set.MTU,
			Link:    set.Link,
			OnError: s.detachFailed, OnRecordError: s.recordFailed, Labels: s.left.of,
			OnAttach: s.attached, OnDetach: s.detached, OnLabel: s.relabelled},
			path{s.config.Engine, s.config.Hooks, s.config.Links})
		if err != nil {
			return fmt.Errorf("containers: %w", err)
		}
		s.manager.Store(m)
		s.nowKnown()
	}
	if err := s.labels.begin(); err != nil {
		return err
	}
	return s.SetMasquerade()
}

// nowKnown notes that the pods are known, and has those who wait for that hear of it.
func (s *Service) nowKnown() {
	s.known.Store(true)
	s.config.Changed()
}

// Known reports whether LivePods are all: those of an earlier run are taken over, or there were
// none.
func (s *Service) Known() bool { return s.known.Load() }

// Stop stops the removal of pods that are gone, and waits for removals in progress.
func (s *Service) Stop() { s.stop() }

// EndChanges has all further requests that change pods fail, and waits for those that are under way
// and until the pods that are being taken away are gone.
func (s *Service) EndChanges() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.changes.Wait()
	if m := s.manager.Load(); m != nil {
		m.Wait()
	}
}

// Close releases what the pods need of the host. They keep their network.
func (s *Service) Close() {
	if m := s.manager.Load(); m != nil {
		m.Close()
	}
}
