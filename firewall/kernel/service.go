package kernel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// SetServices replaces the set of services. Flows of a backend that is no longer there end; all
// others keep theirs.
func (e *Engine) SetServices(all []forward.Service) error {
	want := map[weirPublishedKey]*forward.Service{}
	for i := range all {
		s := &all[i]
		k, err := serviceKey(s)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.At, err)
		}
		if want[k] != nil {
			return fmt.Errorf("service %s: the port is given away twice", s.At)
		}
		want[k] = s
	}
	e.mu.Lock()
	err := e.putServicesLocked(want)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	return e.endWithdrawn()
}

func serviceKey(s *forward.Service) (k weirPublishedKey, err error) {
	at := s.At.Addr().Unmap()
	switch {
	case s.Proto != packet.ProtoTCP && s.Proto != packet.ProtoUDP:
		return k, fmt.Errorf("protocol %d: only TCP and UDP have services", s.Proto)
	case !at.IsValid() || at.IsUnspecified() || s.At.Port() == 0:
		return k, errors.New("no address and port")
	case len(s.Backends) > maxBackends:
		return k, fmt.Errorf("%d pods; at most %d are possible", len(s.Backends), maxBackends)
	}
	for _, b := range s.Backends {
		if to := b.To.Addr().Unmap(); !to.IsValid() || to.Is4() != at.Is4() || b.To.Port() == 0 {
			return k, fmt.Errorf("%s cannot be one of its pods", b.To)
		}
	}
	return weirPublishedKey{Addr: wordsOf(at), Port: s.At.Port(), Proto: uint8(s.Proto)}, nil
}

// There is a place for every pod that forward allows.
const _ = uint(backendPlaces - forward.MaxAllBackends)

// putServicesLocked writes the services: what a port leads to before the port, and what is gone
// after it.
func (e *Engine) putServicesLocked(want map[weirPublishedKey]*forward.Service) error {
	if err := e.readServicesLocked(); err != nil {
		return err
	}
	next, trials := map[weirPublishedKey]*weirService{}, map[uint32]uint64{}
	used := e.backendPlacesLocked()
	for k, s := range want {
		v, err := e.serviceOf(s, e.services[k], used, trials)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.At, err)
		}
		next[k] = v
	}
	for place, most := range trials {
		if e.trials[place] == most {
			continue
		}
		if err := e.objects.BackendTrials.Put(place, most); err != nil {
			return fmt.Errorf("write the trial of a pod of a service: %w", err)
		}
		e.trials[place] = most
	}
	old := e.services
	for k, v := range next {
		if was := old[k]; was != nil && *was == *v {
			continue
		}
		e.withdrawals.made += uint64(bit(loses(old[k], v)))
		if err := e.objects.Services.Put(k, v); err != nil {
			return fmt.Errorf("write service %s: %w", want[k].At, err)
		}
		old[k] = v
	}
	e.turns = map[forward.ServiceKey]uint64{} // not before: a Put that failed has no new seed
	for _, s := range want {
		e.turns[s.Key()] = s.Turn
	}
	e.chooseOwnLocked()
	if err := e.putAddressesLocked(); err != nil {
		return err
	}
	ports := map[weirPublishedKey]weirPublished{}
	for k := range next {
		ports[k] = weirPublished{Kind: toService}
	}
	if !e.servesLocked(ports) {
		if err := e.putPublishedLocked(ports, toService); err != nil {
			return err
		}
	}
	for k := range old {
		if next[k] != nil {
			continue
		}
		if err := e.objects.Services.Delete(k); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete a service: %w", err)
		}
		delete(old, k)
	}
	return nil
}

// servesLocked reports that the ports of services are those that there are: to write them again
// would invalidate the forwarding caches.
func (e *Engine) servesLocked(ports map[weirPublishedKey]weirPublished) bool {
	if e.published == nil || !e.withdrawals.known[toService] {
		return false
	}
	n := 0
	for k, v := range e.published {
		if v.Kind == toService {
			n++
			if _, stays := ports[k]; !stays {
				return false
			}
		}
	}
	return n == len(ports)
}

// readServicesLocked reads what an earlier engine has written.
func (e *Engine) readServicesLocked() error {
	if e.services != nil {
		return nil
	}
	held, err := readAll[weirPublishedKey, weirService](e.objects.Services)
	if err != nil {
		return fmt.Errorf("read the services: %w", err)
	}
	e.services, e.trials = map[weirPublishedKey]*weirService{}, map[uint32]uint64{}
	for k, v := range held {
		clear(v.Seen[:])
		e.services[k] = &v
		for i := range v.backends() {
			b := &v.Backend[i]
			var most uint64
			if err := e.objects.BackendTrials.Lookup(b.Place, &most); err != nil {
				return fmt.Errorf("read the trial of a pod of a service: %w", err)
			}
			e.trials[b.Place] = most
		}
	}
	return nil
}

// backends returns how many backends a service has: those that get flows come first.
func (v *weirService) backends() (n int) {
	for n < maxBackends && v.Backend[n].Port != 0 {
		n++
	}
	return n
}

// has returns where a pod lies among the backends of a service, -1 if it is none.
func (v *weirService) has(to netip.AddrPort) int {
	for i := range v.backends() {
		if b := &v.Backend[i]; b.Addr == wordsOf(to.Addr()) && b.Port == uint32(to.Port()) {
			return i
		}
	}
	return -1
}

// loses reports that a backend goes.
func loses(old, now *weirService) bool {
	if old == nil {
		return false
	}
	for i := range old.backends() {
		b := &old.Backend[i]
		if now.has(netip.AddrPortFrom(b.Addr.addr(), uint16(b.Port))) < 0 {
			return true
		}
	}
	return false
}

// backendPlacesLocked are the places in which backends count.
func (e *Engine) backendPlacesLocked() map[uint32]bool {
	used := map[uint32]bool{}
	for _, v := range e.services {
		for i := range v.backends() {
			used[v.Backend[i].Place] = true
		}
	}
	return used
}

// serviceOf returns what the kernel is to know of a service; old is what it knows, nil if it knows
// none. It takes places for new backends and notes the trials.
func (e *Engine) serviceOf(s *forward.Service, old *weirService, used map[uint32]bool,
	trials map[uint32]uint64) (*weirService, error) {
	v := &weirService{}
	turn, known := e.turns[s.Key()]
	var list []forward.Backend
	for _, out := range []bool{false, true} { // those that get flows come first
		for _, b := range s.Backends {
			if b.Out == out {
				list = append(list, b)
			}
		}
		if !out {
			v.Count = uint32(len(list))
		}
	}
	for i, b := range list {
		to := &v.Backend[i]
		to.Addr, to.Port = wordsOf(b.To.Addr().Unmap()), uint32(b.To.Port())
		if at := old.find(b.To); at >= 0 {
			to.Place = old.Backend[at].Place
		} else if err := e.newPlace(&to.Place, used); err != nil {
			return nil, err
		}
		trials[to.Place] = b.Trial
	}
	if old != nil && (!known || turn == s.Turn) {
		v.Seed = old.Seed
	} else if err := randomize(v.Seed[:]); err != nil {
		return nil, err
	}
	v.Slot = spread(holders(old, v), int(v.Count))
	v.Other = v.Slot
	others, next := steady(list[:v.Count]), 0
	for i, b := range v.Slot {
		if v.Count > 0 && list[b].Trial != 0 && len(others) > 0 {
			v.Other[i] = others[next%len(others)]
			next++
		}
	}
	return v, nil
}

// find is has for a service that may not be there.
func (v *weirService) find(to netip.AddrPort) int {
	if v == nil {
		return -1
	}
	return v.has(netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
}

// holders says whose the slots of a service were, by the backends that get flows now.
func holders(old, now *weirService) (held [serviceSlots]int) {
	of := map[int]int{}
	for i := range int(now.Count) {
		b := &now.Backend[i]
		of[old.find(netip.AddrPortFrom(b.Addr.addr(), uint16(b.Port)))] = i
	}
	for i := range held {
		held[i] = -1
		if old == nil || old.Count == 0 {
			continue
		}
		if b, there := of[int(old.Slot[i])]; there {
			held[i] = b
		}
	}
	return held
}

// steady are the backends that are not on trial.
func steady(list []forward.Backend) (all []uint8) {
	for i, b := range list {
		if b.Trial == 0 {
			all = append(all, uint8(i))
		}
	}
	return all
}

// newPlace gives a backend a place to count in, and zeros it.
func (e *Engine) newPlace(place *uint32, used map[uint32]bool) error {
	for p := range uint32(backendPlaces) {
		if used[p] {
			continue
		}
		if err := errors.Join(e.objects.BackendTrials.Put(p, uint64(0)),
			e.objects.BackendCounts.Put(p, weirBackendCount{})); err != nil {
			return fmt.Errorf("zero the counters of a pod of a service: %w", err)
		}
		used[p], *place = true, p
		delete(e.trials, p)
		return nil
	}
	return fmt.Errorf("all services together have %d pods, which is as many as there can be",
		backendPlaces)
}

// Services returns what the backends of the services have counted, as they were set last: by the
// engine before, if this one has set none yet.
func (e *Engine) Services() (map[forward.ServiceKey]map[netip.AddrPort]forward.BackendCounters,
	error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.readServicesLocked(); err != nil {
		return nil, err
	}
	all := map[forward.ServiceKey]map[netip.AddrPort]forward.BackendCounters{}
	for k, v := range maps.All(e.services) {
		of := map[netip.AddrPort]forward.BackendCounters{}
		for i := range v.backends() {
			b := &v.Backend[i]
			var n weirBackendCount
			if err := e.objects.BackendCounts.Lookup(b.Place, &n); err != nil {
				return nil, fmt.Errorf("read the counters of a pod of a service: %w", err)
			}
			of[netip.AddrPortFrom(b.Addr.addr(), uint16(b.Port))] = forward.BackendCounters{
				Begun: n.Begun, Accepted: n.Accepted, Refused: n.Refused, Drawn: n.Drawn}
		}
		all[forward.ServiceKey{Proto: packet.Proto(k.Proto),
			At: netip.AddrPortFrom(k.Addr.addr(), k.Port)}] = of
	}
	return all, nil
}
