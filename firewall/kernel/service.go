package kernel

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// SetServices replaces the set of services. Flows of a backend that is no longer there end; all
// others keep theirs.
func (e *Engine) SetServices(all []forward.Service) error {
	want, n := map[weirPublishedKey]*forward.Service{}, 0
	for i := range all {
		s := &all[i]
		k, err := serviceKey(s)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.At, err)
		}
		if want[k] != nil {
			return fmt.Errorf("service %s: the port has two services", s.At)
		}
		want[k] = s
		n += len(s.Backends)
	}
	if n > backendPlaces {
		return fmt.Errorf("all services together have %d pods; at most %d are possible", n,
			backendPlaces)
	}
	short, err := e.tryServices(want)
	if err == nil && short { // what has gone has left its places
		_, err = e.tryServices(want)
	}
	return err
}

// tryServices replaces the set of services. It is short if there were no places for some backends,
// which it leaves out.
func (e *Engine) tryServices(want map[weirPublishedKey]*forward.Service) (short bool, err error) {
	e.mu.Lock()
	short, err = e.putServicesLocked(want)
	e.mu.Unlock()
	if err != nil {
		return short, err
	}
	return short, e.endWithdrawn()
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
// after it. One that cannot be written does not keep the others from it.
func (e *Engine) putServicesLocked(want map[weirPublishedKey]*forward.Service) (short bool,
	err error) {
	if err := e.readServicesLocked(); err != nil {
		return false, err
	}
	next, trials := map[weirPublishedKey]*weirService{}, map[uint32]uint64{}
	used := e.backendPlacesLocked()
	for k, s := range want {
		v, fewer, err := e.serviceOf(k, s, used, trials)
		if err != nil {
			return false, fmt.Errorf("service %s: %w", s.At, err)
		}
		next[k], short = v, short || fewer
	}
	for place, most := range trials {
		if e.trials[place] == most {
			continue
		}
		if err := e.objects.BackendTrials.Put(place, most); err != nil {
			return false, fmt.Errorf("write the trial of a pod of a service: %w", err)
		}
		e.trials[place] = most
	}
	var errs []error
	for k, v := range next {
		if err := e.putServiceLocked(k, v); err != nil {
			errs = append(errs, fmt.Errorf("write service %s: %w", want[k].At, err))
			continue
		}
		e.turns[k] = want[k].Turn
	}
	errs = append(errs, e.putServicePortsLocked(next))
	return short, errors.Join(errs...)
}

// putServiceLocked writes a service, if it is to change. While its seed stays, so do the parts that
// are seen: a client may know where they lead. The programs may set a bit between the two calls,
// which is lost then.
func (e *Engine) putServiceLocked(k weirPublishedKey, v *weirService) error {
	now, was := *v, e.services[k]
	if was != nil && *was == *v {
		return nil
	}
	if was != nil && was.Seed == v.Seed {
		var held weirService
		if err := e.objects.Services.Lookup(k, &held); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		now.Seen = held.Seen
	}
	e.withdrawals.made += uint64(bit(loses(was, v)))
	if err := e.objects.Services.Put(k, &now); err != nil {
		return err
	}
	e.services[k] = v
	return nil
}

// putServicePortsLocked has the ports of the services lead to them, and takes away those that are
// gone. Rules ask whether an address of a service is the host's.
func (e *Engine) putServicePortsLocked(next map[weirPublishedKey]*weirService) error {
	before := e.addresses
	err := e.replaceServicePortsLocked(next)
	if before != nil && e.addresses != nil && maps.Equal(before, e.addresses) {
		return err
	}
	return errors.Join(err, e.changedLocked())
}

// replaceServicePortsLocked adds addresses before their ports, and takes them away after them.
func (e *Engine) replaceServicePortsLocked(next map[weirPublishedKey]*weirService) error {
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
	for k := range e.services {
		if next[k] != nil {
			continue
		}
		if err := e.objects.Services.Delete(k); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete a service: %w", err)
		}
		delete(e.services, k)
		delete(e.turns, k)
	}
	return e.putAddressesLocked()
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
	e.turns = map[weirPublishedKey]uint64{}
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

// Services returns the counters of the backends of the services that were set last: by the previous
// engine, if this one has set none yet.
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
		all[k.service()] = of
	}
	return all, nil
}

// service is the service at a port.
func (k weirPublishedKey) service() forward.ServiceKey {
	return forward.ServiceKey{Proto: packet.Proto(k.Proto),
		At: netip.AddrPortFrom(k.Addr.addr(), k.Port)}
}

// SeenParts returns, for each TCP service, in how many of its forward.FlowParts parts of the flows
// a connection has begun since they were last divided.
func (e *Engine) SeenParts() (map[forward.ServiceKey]int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.readServicesLocked(); err != nil {
		return nil, err
	}
	all := map[forward.ServiceKey]int{}
	for k := range e.services {
		if packet.Proto(k.Proto) != packet.ProtoTCP {
			continue
		}
		var held weirService
		if err := e.objects.Services.Lookup(k, &held); err != nil {
			return nil, fmt.Errorf("read the seen parts of a service: %w", err)
		}
		n := 0
		for _, word := range held.Seen {
			n += bits.OnesCount64(word)
		}
		all[k.service()] = n
	}
	return all, nil
}
