package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

var _ forward.Forwarder = (*Engine)(nil)

// readForwarding reads what is known of pods from the maps, which are empty in a new engine.
func (e *Engine) readForwarding() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.objects.Forwarding.Lookup(uint32(0), &e.forwarding); err != nil {
		return fmt.Errorf("read the settings of the fast path: %w", err)
	}
	var err error
	if e.endpoints, err = readAll[uint32, weirEndpoint](e.objects.Endpoints); err != nil {
		return fmt.Errorf("read the pods in the kernel: %w", err)
	}
	for _, v := range e.endpoints {
		e.places[v.Place%maxPods] = true
	}
	if e.nics, err = readAll[uint32, weirNic](e.objects.Nics); err != nil {
		return fmt.Errorf("read the NICs in the kernel: %w", err)
	}
	return nil
}

// putForwardingLocked writes the forwarding settings. It follows every change of pods or NICs, and
// invalidates the forwarding caches.
func (e *Engine) putForwardingLocked() error {
	e.forwarding.Pods = uint32(len(e.endpoints))
	if e.stackKnown {
		e.forwarding.Stack = e.stackLocked()
	}
	// 0 marks an empty entry of the forwarding cache
	e.forwarding.Serial = max(e.forwarding.Serial+1, 1)
	if err := e.objects.Forwarding.Put(uint32(0), &e.forwarding); err != nil {
		return fmt.Errorf("write the settings of the fast path: %w", err)
	}
	return nil
}

// SetNetfilter sets whether netfilter may translate packets of pods. Then each of their flows
// begins in the stack, and moves to the fast path if its first packet leaves the stack unchanged.
func (e *Engine) SetNetfilter(translates bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.forwarding.Netfilter == bit(translates) {
		return nil
	}
	e.forwarding.Netfilter = bit(translates)
	return e.putForwardingLocked()
}

// putNICsLocked runs putNICLocked for all interfaces.
func (e *Engine) putNICsLocked() error {
	for index := range e.nics {
		if err := e.putNICLocked(index); err != nil {
			return err
		}
	}
	for index := range e.links {
		if err := e.putNICLocked(index); err != nil {
			return err
		}
	}
	return nil
}

// putNICLocked writes the addresses that pods are masqueraded with at an interface that is not a
// pod's and whose egress hook is ours. Packets may leave by it without the stack if it has Ethernet
// headers.
func (e *Engine) putNICLocked(index uint32) error {
	a := e.links[index]
	_, pod := e.endpoints[index]
	old, was := e.nics[index]
	if a == nil || a.half() || pod || index == loopback {
		if !was {
			return nil
		}
		if err := e.objects.Nics.Delete(index); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete the addresses of interface %d: %w", index, err)
		}
		delete(e.nics, index)
		return e.putForwardingLocked()
	}
	i, _ := interfaceOf(e.ifs, index)
	now := weirNic{Four: visible(i, netip.Addr.Is4), Six: visible(i, netip.Addr.Is6),
		Redirect: bit(a.framing == ethernet)}
	if was && old == now {
		return nil
	}
	if err := e.objects.Nics.Put(index, now); err != nil {
		return fmt.Errorf("write the addresses of interface %d: %w", index, err)
	}
	e.nics[index] = now
	return e.putForwardingLocked()
}

// chooseOwnLocked chooses the addresses that the host has for a pod as a client of a published port
// at a loopback address, or of a service. One of the loopback interface's own (a gateway of pods)
// comes before others, and an address of a service is never chosen.
func (e *Engine) chooseOwnLocked() {
	e.forwarding.Four, e.forwarding.Six = weirAddress{}, weirAddress{}
	virtual := map[weirAddress]bool{}
	for k := range e.services {
		virtual[k.Addr] = true
	}
	four := func(a netip.Addr) bool { return a.Is4() && !virtual[wordsOf(a)] }
	six := func(a netip.Addr) bool { return a.Is6() && !virtual[wordsOf(a)] }
	for _, i := range e.ifs {
		if e.forwarding.Four == (weirAddress{}) {
			e.forwarding.Four = visible(i, four)
		}
		if e.forwarding.Six == (weirAddress{}) {
			e.forwarding.Six = visible(i, six)
		}
	}
}

// loopback is the index of the loopback interface in every namespace.
const loopback = 1

// visible returns the first address of a family that others can answer to, zero if there is none.
func visible(i firewall.Interface, family func(netip.Addr) bool) (w weirAddress) {
	for _, p := range i.Addrs {
		if a := p.Addr(); family(a) && a.IsGlobalUnicast() {
			return wordsOf(a)
		}
	}
	return w
}

func wordsOf(a netip.Addr) (w weirAddress) {
	w.Hi, w.Lo = packet.AddrWords(a)
	return w
}

func (w weirAddress) addr() netip.Addr { return addrOf(w.Hi, w.Lo) }

// natRule marks translations: NAT_RULE of bpf/lib/types.h.
const natRule = 0xffffffff

// endWhere ends the entries of the state table for which gone returns true. With one half of a
// translation goes the other.
func (e *Engine) endWhere(gone func(x *entry) bool) error {
	var end []*entry
	for x, err := range e.entries() {
		if err != nil {
			return err
		}
		if gone(x) {
			end = append(end, x)
		}
	}
	var errs []error
	for _, x := range end {
		errs = append(errs, e.remove(x))
	}
	return errors.Join(errs...)
}

// remove ends the state behind a copy, if it is still there.
func (e *Engine) remove(x *entry) error {
	return e.call.ask(&weirCall{Op: opRemove, Place: x.place, TagWord: x.tag, Count: goneDeleted})
}
