package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/internal/forward"
)

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

// serviceOf returns what the kernel is to know of a service. It takes places for new backends and
// notes the trials. It is short if it left backends out for which there is no place.
func (e *Engine) serviceOf(k weirPublishedKey, s *forward.Service, used map[uint32]bool,
	trials map[uint32]uint64) (v *weirService, short bool, err error) {
	v = &weirService{}
	old := e.services[k] // nil if the kernel knows none
	var list []forward.Backend
	for _, out := range []bool{false, true} { // those that get flows come first
		for _, b := range s.Backends {
			if b.Out != out {
				continue
			}
			to := &v.Backend[len(list)]
			if at := old.find(b.To); at >= 0 {
				to.Place = old.Backend[at].Place
			} else if there, err := e.newPlace(&to.Place, used); err != nil {
				return nil, false, err
			} else if !there {
				short = true
				continue
			}
			to.Addr, to.Port = wordsOf(b.To.Addr().Unmap()), uint32(b.To.Port())
			trials[to.Place] = b.ProbeEnd
			list = append(list, b)
		}
		if !out {
			v.Count = uint32(len(list))
		}
	}
	if turn, known := e.turns[k]; old != nil && (!known || turn == s.Turn) {
		v.Seed = old.Seed
	} else if err := randomize(v.Seed[:]); err != nil {
		return nil, false, err
	}
	v.Slot = spread(holders(old, v), int(v.Count))
	v.Other = v.Slot
	others, next := steady(list[:v.Count]), 0
	for i, b := range v.Slot {
		if v.Count > 0 && list[b].ProbeEnd != 0 && len(others) > 0 {
			v.Other[i] = others[next%len(others)]
			next++
		}
	}
	return v, short, nil
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
		if b.ProbeEnd == 0 {
			all = append(all, uint8(i))
		}
	}
	return all
}

// newPlace gives a backend a place to count in, if there is one, and zeros it.
func (e *Engine) newPlace(place *uint32, used map[uint32]bool) (there bool, err error) {
	for p := range uint32(backendPlaces) {
		if used[p] {
			continue
		}
		if err := errors.Join(e.objects.BackendTrials.Put(p, uint64(0)),
			e.objects.BackendCounts.Put(p, weirBackendCount{})); err != nil {
			return false, fmt.Errorf("zero the counters of a pod of a service: %w", err)
		}
		used[p], *place = true, p
		delete(e.trials, p)
		return true, nil
	}
	return false, nil
}
