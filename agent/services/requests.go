package services

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/observe"
)

// Add adds a service. The one that is there already is left as it is.
func (s *Manager) Add(r api.AddService) (api.Services, error) {
	spec, err := specOf(r)
	if err != nil {
		return api.Services{}, err
	}
	taken := s.config.Taken(spec.At.Addr()) // it takes locks of its own
	var changed netip.Addr
	defer s.changed(&changed)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.startLocked()
	if err != nil {
		return api.Services{}, err
	}
	for _, o := range before.Services {
		if o.Name == spec.Name && o != spec {
			return api.Services{}, hinted{fmt.Sprintf("there is a service %s already, %s port %d "+
				"of %s", o.Name, o.Proto, o.At.Port(), o.At.Addr()),
				"choose another name, or: weir service remove " + o.Name}
		}
		if o == spec {
			return s.viewLocked(spec.Name)
		}
	}
	if err := s.checkAgainst(&spec, &before); err != nil {
		return api.Services{}, err
	}
	if taken != nil {
		return api.Services{}, fmt.Errorf("service %s: %w", spec.Name, taken)
	}
	if err := s.setAsideLocked(); err != nil {
		return api.Services{}, fmt.Errorf("service %s: %w", spec.Name, err)
	}
	now := before.clone()
	now.Services = append(now.Services, spec)
	if a := spec.At.Addr(); !slices.Contains(now.Held, a) {
		now.Held = append(now.Held, a)
	}
	if err := s.changeLocked(before, now, spec.At.Addr()); err != nil {
		return api.Services{}, fmt.Errorf("service %s: %w", spec.Name, err)
	}
	changed = spec.At.Addr()
	s.config.Log.Info("service added", "service", spec.Name, "at", spec.At, "table", spec.Table)
	return s.viewLocked(spec.Name)
}

// Remove removes a service; its flows end.
func (s *Manager) Remove(r api.RemoveService) (api.Done, error) {
	var changed netip.Addr
	defer s.changed(&changed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.unusableLocked(); err != nil {
		return api.Done{}, err
	}
	at := slices.IndexFunc(s.record.Services, func(o Spec) bool { return o.Name == r.Name })
	if at < 0 {
		return api.Done{}, hinted{"no such service: " + r.Name, "weir service list"}
	}
	before, now := s.record, s.record.clone()
	now.Services = slices.Delete(now.Services, at, at+1)
	if err := s.changeLocked(before, now, netip.Addr{}); err != nil {
		return api.Done{}, fmt.Errorf("service %s: %w", r.Name, err)
	}
	changed = before.Services[at].At.Addr()
	s.config.Log.Info("service removed", "service", r.Name)
	return api.Done{Version: api.Version}, nil
}

// changed tells others about an address, if there is one.
func (s *Manager) changed(a *netip.Addr) {
	if a.IsValid() {
		s.config.Changed(*a)
	}
}

// changeLocked writes a record and puts it in force. An address that is needed, if there is one,
// has to lie on the loopback then. After an error the record before is in force and on the disk,
// but for addresses, which are taken away later.
func (s *Manager) changeLocked(before, now record, needed netip.Addr) error {
	if err := now.write(s.config.File); err != nil {
		return fmt.Errorf("write the services: %w", err)
	}
	s.record, s.broken, s.salvaged = now, nil, nil
	err := s.applyLocked()
	if err == nil {
		err = s.refused[needed]
	}
	if err == nil {
		return nil
	}
	back := before.clone()
	back.Held = slices.Clone(now.Held)
	s.record = back
	return errors.Join(err, back.write(s.config.File), s.applyLocked())
}

// CheckRange refuses a range of another node in which a service has its address.
func (s *Manager) CheckRange(r netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.record.Services {
		if o := &s.record.Services[i]; r.Contains(o.At.Addr()) {
			return hinted{fmt.Sprintf("%s has %s, the address of service %s of this node", r,
				o.At.Addr(), o.Name), "give one of them another address: weir service list"}
		}
	}
	return nil
}

// List returns the services, in order of name.
func (s *Manager) List() (api.Services, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.viewLocked("")
}

// viewLocked shows the services, or one.
func (s *Manager) viewLocked(only string) (api.Services, error) {
	list := api.Services{Version: api.Version, Services: []api.Service{}}
	if s.broken != nil {
		return list, s.broken
	}
	counts, err := s.config.Engine.Services()
	if err != nil {
		return list, err
	}
	pods, _ := s.config.Pods()
	of, _ := allBackends(s.record.Services, pods)
	for i := range s.record.Services {
		spec := &s.record.Services[i]
		if only == "" || only == spec.Name {
			list.Services = append(list.Services, s.viewOf(spec, of[i], counts))
		}
	}
	slices.SortFunc(list.Services, func(a, b api.Service) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list, nil
}

func (s *Manager) viewOf(spec *Spec, of []backend,
	counts map[forward.ServiceKey]map[netip.AddrPort]forward.BackendCounters) api.Service {
	v := api.Service{Name: spec.Name, Proto: spec.Proto, At: spec.At, Table: spec.Table,
		Port: spec.Port, Pods: []api.ServicePod{}}
	key := forward.ServiceKey{Proto: spec.Proto, At: spec.At}
	h := s.health[key]
	for _, b := range of {
		n := counts[key][b.at]
		one := api.ServicePod{Pod: b.pod, Addr: b.at.Addr(), State: string(stateOK),
			Begun: n.Begun, Accepted: n.Accepted, Refused: n.Refused}
		if h != nil && h.pods[b.at] != nil {
			one.State = string(h.pods[b.at].state)
		}
		v.Pods = append(v.Pods, one)
	}
	return v
}

// Metrics are about the services: a pod has a name that its runtime chooses, so pods are counted.
func (s *Manager) Metrics() ([]observe.Metric, error) {
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	if broken != nil {
		return nil, nil // the status shows it, and the other metrics are not to fail
	}
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	pods := observe.Metric{Name: "weir_service_pods", Type: observe.Gauge,
		Help: "Pods of a service, by how they are used."}
	connections := observe.Metric{Name: "weir_service_connections_total", Type: observe.Counter,
		Help: "TCP connections of a service: begun, accepted and refused by its pods."}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list.Services {
		v := &list.Services[i]
		n := map[string]int{}
		for _, p := range v.Pods {
			n[p.State]++
		}
		for _, state := range []state{stateOK, statePassed, stateProbing} {
			pods.Add(float64(n[string(state)]), "service", v.Name, "state", string(state))
		}
		if h := s.health[forward.ServiceKey{Proto: v.Proto, At: v.At}]; h != nil {
			connections.Add(float64(h.total.Begun), "service", v.Name, "result", "begun")
			connections.Add(float64(h.total.Accepted), "service", v.Name, "result", "accepted")
			connections.Add(float64(h.total.Refused), "service", v.Name, "result", "refused")
		}
	}
	return []observe.Metric{pods, connections}, nil
}
