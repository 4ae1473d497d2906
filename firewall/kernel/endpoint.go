package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
)

// Which limits an endpoint has: bits by firewall.Direction, as the pod sees it.
const (
	limitedIn  = 1 << firewall.In
	limitedOut = 1 << firewall.Out
	// ENDPOINT_QUEUED of bpf/lib/pod.h
	limitedQueued = 4
	// ENDPOINT_NETKIT
	limitedNetkit = 8
)

// SetEndpoint adds or changes a pod, see forward.Forwarder.
func (e *Engine) SetEndpoint(p forward.Endpoint) error {
	v, err := endpoint(&p)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	// While a previous engine guards the pods, ours has to know all of them before it does.
	if !e.takesHooks() {
		// Also when another interface had its index before.
		if _, err := e.Attach(p.Index); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	v.Limited |= bit(e.queued[p.Index]) * limitedQueued
	old, known := e.endpoints[p.Index]
	if v.Place = old.Place; !known {
		if v.Place, err = e.freePlaceLocked(); err != nil {
			return err
		}
	}
	err = e.putEndpointLocked(&v, &old, known, p.Rates)
	if err != nil && !known {
		return errors.Join(err, e.dropEndpointLocked(&v))
	}
	return err
}

// endpoint turns a pod into what the kernel knows of it.
func endpoint(p *forward.Endpoint) (v weirEndpoint, err error) {
	switch {
	case p.Index == 0:
		return v, errors.New("no host interface")
	case len(p.Addrs) == 0 || len(p.Addrs) > maxPodAddresses:
		return v, fmt.Errorf("%d addresses: from 1 to %d are possible", len(p.Addrs),
			maxPodAddresses)
	case p.MTU < 68 || p.MTU > 65535:
		return v, fmt.Errorf("an MTU of %d bytes: from 68 to 65535 are possible", p.MTU)
	}
	v = weirEndpoint{Count: uint32(len(p.Addrs)), Ifindex: p.Index, Mtu: p.MTU, Mac: p.MAC,
		HostMac: p.HostMAC}
	for i, a := range p.Addrs {
		if a = a.Unmap(); !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
			return v, fmt.Errorf("%s cannot be its address", a)
		}
		v.Addr[i] = wordsOf(a)
	}
	v.Limited = bit(p.Rates.In > 0)*limitedIn | bit(p.Rates.Out > 0)*limitedOut |
		bit(p.Netkit)*limitedNetkit
	return v, nil
}

// SetQdiscLinks sets at which interfaces of pods packets go through queueing disciplines, which
// only the stack asks. An index that is not a pod's counts as soon as it is one's.
func (e *Engine) SetQdiscLinks(indexes []uint32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queued = map[uint32]bool{}
	for _, index := range indexes {
		e.queued[index] = true
	}
	for index, v := range e.endpoints {
		limited := v.Limited&^limitedQueued | bit(e.queued[index])*limitedQueued
		if limited == v.Limited {
			continue
		}
		v.Limited = limited
		if err := e.writeEndpointLocked(&v); err != nil {
			return err
		}
		if err := e.putForwardingLocked(); err != nil {
			return err
		}
	}
	return nil
}

// writeEndpointLocked writes what the kernel knows of a pod.
func (e *Engine) writeEndpointLocked(v *weirEndpoint) error {
	e.endpoints[v.Ifindex], e.places[v.Place] = *v, true
	if err := e.objects.Endpoints.Put(v.Ifindex, v); err != nil {
		return fmt.Errorf("write a pod to the kernel: %w", err)
	}
	for _, a := range v.Addr[:v.Count] {
		if err := e.objects.Pods.Put(a, v); err != nil {
			return fmt.Errorf("write pod address %s to the kernel: %w", a.addr(), err)
		}
	}
	return nil
}

// freePlaceLocked returns the lowest place that no pod counts in.
func (e *Engine) freePlaceLocked() (uint32, error) {
	if place := slices.Index(e.places[:], false); place >= 0 {
		return uint32(place), nil
	}
	return 0, fmt.Errorf("there are %d pods, the maximum", maxPods)
}

func (e *Engine) putEndpointLocked(v, old *weirEndpoint, known bool, r forward.Rates) error {
	if !known {
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		if err := e.objects.PodCounters.Put(v.Place, make([]weirPodCounter, cpus)); err != nil {
			return fmt.Errorf("zero the counters of a pod: %w", err)
		}
	}
	for dir, limit := range [2][2]uint64{firewall.In: {r.In, r.InBurst},
		firewall.Out: {r.Out, r.OutBurst}} {
		if err := e.objects.Buckets.Put(v.Place*2+uint32(dir),
			bucket(limit[0], limit[1])); err != nil {
			return fmt.Errorf("write the rate limits of a pod: %w", err)
		}
	}
	if err := e.writeEndpointLocked(v); err != nil {
		return err
	}
	if err := e.dropAddressesLocked(old, v); err != nil {
		return err
	}
	if err := e.putForwardingLocked(); err != nil {
		return err
	}
	if err := e.putNICLocked(v.Ifindex); err != nil {
		return err
	}
	return e.followPeerLocked(v.Ifindex)
}

// bucket describes a limit of bits per second with a burst of bytes. The burst holds at least ten
// milliseconds and one large packet: less would stop traffic altogether.
func bucket(rate, burst uint64) weirBucket {
	if rate == 0 {
		return weirBucket{}
	}
	perByte := 8e9 / float64(rate)
	return weirBucket{PerByte: uint64(perByte * 65536),
		Burst: uint64(max(10e6, perByte*float64(max(burst, 65536))))}
}

// dropAddressesLocked forgets the addresses of old that v, if any, does not have.
func (e *Engine) dropAddressesLocked(old, v *weirEndpoint) error {
	var errs []error
	for _, a := range old.Addr[:old.Count] {
		kept := false
		for _, b := range v.Addr[:v.Count] {
			kept = kept || a == b
		}
		var now weirEndpoint
		if kept || e.objects.Pods.Lookup(a, &now) != nil || now.Ifindex != old.Ifindex {
			continue // still there, or another pod's by now
		}
		if err := e.objects.Pods.Delete(a); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// endpointLocked returns a pod that is known, or is being forgotten.
func (e *Engine) endpointLocked(index uint32) (v weirEndpoint, known bool) {
	if v, known = e.endpoints[index]; !known {
		v, known = e.undeleted[index]
	}
	return v, known
}

// EndpointAddrs returns the addresses of a pod whose states may not have ended yet.
func (e *Engine) EndpointAddrs(index uint32) (addrs []netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, _ := e.endpointLocked(index)
	for _, a := range v.Addr[:v.Count] {
		addrs = append(addrs, a.addr())
	}
	return addrs
}

// DeleteEndpoint forgets a pod, see forward.Forwarder. Its interface stays guarded for as long as
// it exists. After an error a repeat does what is left: while states of the pod are there, no other
// pod may get its addresses. The kernel keeps the endpoint until they have ended: if this process
// ends before, a repeat by the next engine does what is left, too.
func (e *Engine) DeleteEndpoint(index uint32) error {
	e.mu.Lock()
	v, known := e.endpointLocked(index)
	if !known {
		e.mu.Unlock()
		return nil
	}
	delete(e.endpoints, index)
	e.undeleted[index] = v
	err := errors.Join(e.dropAddressesLocked(&v, &weirEndpoint{}), e.putForwardingLocked(),
		e.followPeerLocked(index))
	ours := map[netip.Addr]bool{}
	for _, a := range v.Addr[:v.Count] {
		var other weirEndpoint // that it may belong to by now
		if errors.Is(e.objects.Pods.Lookup(a, &other), ebpf.ErrKeyNotExist) {
			ours[a.addr()] = true
		}
	}
	e.mu.Unlock()
	err = errors.Join(err, e.endWhere(func(x *entry) bool {
		return ours[addrOf(x.addr[0], x.addr[1])] || ours[addrOf(x.addr[2], x.addr[3])]
	}))
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, left := e.undeleted[index]; !left { // another pod may have its place by now
		return nil
	}
	return e.dropEndpointLocked(&v)
}

// dropEndpointLocked removes what is left of a pod, or of one that could not be added.
func (e *Engine) dropEndpointLocked(v *weirEndpoint) error {
	err := e.dropAddressesLocked(v, &weirEndpoint{})
	if err := e.objects.Endpoints.Delete(v.Ifindex); err != nil &&
		!errors.Is(err, ebpf.ErrKeyNotExist) {
		return err // DeleteEndpoint does it again
	}
	delete(e.endpoints, v.Ifindex)
	delete(e.undeleted, v.Ifindex)
	e.places[v.Place] = false
	return errors.Join(err, e.putForwardingLocked(), e.followPeerLocked(v.Ifindex))
}

// Endpoints returns the pods with their counters, see forward.Forwarder.
func (e *Engine) Endpoints() ([]forward.EndpointCounters, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]forward.EndpointCounters, 0, len(e.endpoints))
	for index, v := range e.endpoints {
		var each []weirPodCounter
		if err := e.objects.PodCounters.Lookup(v.Place, &each); err != nil {
			return nil, fmt.Errorf("read the counters of a pod: %w", err)
		}
		c := forward.EndpointCounters{Index: index}
		for i := range each {
			n := &each[i]
			c.PacketsIn, c.BytesIn, c.DropsIn = c.PacketsIn+n.Packets[0], c.BytesIn+n.Bytes[0],
				c.DropsIn+n.Drops[0]
			c.PacketsOut, c.BytesOut, c.DropsOut = c.PacketsOut+n.Packets[1], c.BytesOut+n.Bytes[1],
				c.DropsOut+n.Drops[1]
		}
		all = append(all, c)
	}
	return all, nil
}
