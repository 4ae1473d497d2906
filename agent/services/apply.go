package services

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
)

// applyLocked makes the engine and the loopback have what the record says. Ports come before
// addresses: at an address without its ports, sockets of the host would be reached. An address that
// the loopback does not get is noted and no error: the other services are not to wait for it.
func (s *Manager) applyLocked() error {
	pods, ok := s.config.Pods()
	if !ok {
		return errLater // or their flows would end
	}
	if err := s.setLocked(pods); err != nil {
		return err
	}
	virtual := s.record.virtual()
	s.addLocked(virtual)
	return s.releaseLocked(virtual)
}

// addLocked gives the loopback the addresses of the services.
func (s *Manager) addLocked(virtual []netip.Addr) {
	const about = "the addresses of services"
	s.refused = map[netip.Addr]error{}
	var first error
	for _, a := range virtual {
		if s.config.HasAddress(a) {
			continue
		}
		if err := s.config.AddAddress(a); err != nil {
			s.refused[a] = err
			if first == nil {
				first = fmt.Errorf("%s: %w", a, err)
			}
		}
	}
	if first == nil {
		s.config.Problems.Solved(about)
		return
	}
	s.config.Problems.Set(about, fmt.Sprintf("cannot add %d addresses of services to lo: %v",
		len(s.refused), first), "Weir tries again; for IPv6, "+
		"net.ipv6.conf.lo.disable_ipv6 has to be 0")
}

// releaseLocked takes the addresses away that no service has any more.
func (s *Manager) releaseLocked(virtual []netip.Addr) error {
	now := s.record.clone()
	var errs []error
	for _, a := range s.record.Held {
		if slices.Contains(virtual, a) {
			continue
		}
		if err := s.config.RemoveAddress(a); err != nil {
			errs = append(errs, fmt.Errorf("take %s from the loopback: %w", a, err))
			continue
		}
		now.Held = slices.DeleteFunc(now.Held, func(h netip.Addr) bool { return h == a })
	}
	if len(now.Held) == len(s.record.Held) {
		return errors.Join(errs...)
	}
	if err := now.write(s.config.File); err != nil {
		return errors.Join(append(errs, fmt.Errorf("write the services: %w", err))...)
	}
	s.record = now
	return errors.Join(errs...)
}

// setLocked hands the services to the engine, if it does not have them.
func (s *Manager) setLocked(pods []pod.Pod) error {
	next, all := map[string][]forward.Backend{}, []forward.Service{}
	same := s.set != nil && len(s.set) == len(s.record.Services)
	of, left := allBackends(s.record.Services, pods)
	s.reportLeft(left)
	for i := range s.record.Services {
		spec := &s.record.Services[i]
		one := forward.Service{Proto: spec.Proto, At: spec.At}
		h := s.health[one.Key()]
		if h != nil {
			one.Turn = h.turn
		}
		for _, b := range of[i] {
			one.Backends = append(one.Backends, h.use(b.at))
		}
		// the turn is a part of what is compared
		id := fmt.Sprint(*spec, one.Turn)
		next[id] = one.Backends
		had, there := s.set[id]
		same = same && there && slices.Equal(had, one.Backends)
		all = append(all, one)
	}
	if same {
		return nil
	}
	if err := s.config.Engine.SetServices(all); err != nil {
		s.set = nil
		return err
	}
	s.set = next
	return nil
}

// reportLeft notes how many pods are left out.
func (s *Manager) reportLeft(left int) {
	const about = "the pods of services"
	if left == 0 {
		s.config.Problems.Solved(about)
		return
	}
	s.config.Problems.Set(about, fmt.Sprintf("%d pods get no flows of a service: a service has at "+
		"most %d pods, and all services of a host together %d", left, forward.MaxBackends,
		forward.MaxAllBackends), "weir service list shows the pods that get flows")
}

// use says how a pod is used.
func (h *health) use(at netip.AddrPort) forward.Backend {
	b := forward.Backend{To: at}
	if h == nil || h.pods[at] == nil {
		return b
	}
	switch p := h.pods[at]; p.state {
	case statePassed:
		b.Out = true
	case stateProbing:
		b.ProbeEnd = p.probeEnd
	}
	return b
}
