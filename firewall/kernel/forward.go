package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

var _ firewall.Forwarder = (*Engine)(nil)

// resumeForwarding reads what is known of pods from the maps, which are empty in a new engine.
func (e *Engine) resumeForwarding() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.objects.Forwarding.Lookup(uint32(0), &e.forwarding); err != nil {
		return fmt.Errorf("read the settings of the fast path: %w", err)
	}
	var index uint32
	var v weirEndpoint
	all := e.objects.Endpoints.Iterate()
	for all.Next(&index, &v) {
		e.endpoints[index] = v
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read the pods in the kernel: %w", err)
	}
	e.forwarding.Plain = bit(e.plain)
	if err := e.putForwardingLocked(); err != nil {
		return err
	}
	return e.resumeLocalLocked()
}

// putForwardingLocked writes the settings. It follows every change of pods or cards: packets forget what they found out before.
func (e *Engine) putForwardingLocked() error {
	e.forwarding.Pods = uint32(len(e.endpoints))
	e.forwarding.Serial = max(e.forwarding.Serial+1, 1) // 0 marks what packets have not found out yet
	if err := e.objects.Forwarding.Put(uint32(0), &e.forwarding); err != nil {
		return fmt.Errorf("write the settings of the fast path: %w", err)
	}
	return nil
}

// putCardsLocked writes through which interfaces pods may leave without the stack, and the addresses that hide them there: those whose
// egress hook is ours, that have Ethernet headers and are no pod's.
func (e *Engine) putCardsLocked() error {
	want := map[uint32]weirCard{}
	for index, a := range e.links {
		if _, pod := e.endpoints[index]; pod || a.l3 || index == loopback {
			continue
		}
		i := e.ifs[index]
		want[index] = weirCard{Four: visible(i, netip.Addr.Is4), Six: visible(i, netip.Addr.Is6)}
	}
	for index, v := range want {
		if err := e.objects.Cards.Put(index, v); err != nil {
			return fmt.Errorf("write the addresses of interface %d: %w", index, err)
		}
	}
	if err := prune(e.objects.Cards, func(index uint32) bool { _, ok := want[index]; return ok }); err != nil {
		return err
	}
	return e.chooseOwnLocked()
}

// chooseOwnLocked chooses and writes the addresses by which a pod knows the host when the host called a published port at a loopback address: one of the
// loopback interface's own (a gateway of pods) before others.
func (e *Engine) chooseOwnLocked() error {
	var ifs []firewall.Interface
	for _, i := range e.ifs {
		if len(i.Addrs) > 0 {
			ifs = append(ifs, i)
		}
	}
	slices.SortFunc(ifs, func(a, b firewall.Interface) int { return cmp.Compare(a.Index, b.Index) })
	e.forwarding.Four, e.forwarding.Six = weirAddress{}, weirAddress{}
	for _, i := range ifs {
		if e.forwarding.Four == (weirAddress{}) {
			e.forwarding.Four = visible(i, netip.Addr.Is4)
		}
		if e.forwarding.Six == (weirAddress{}) {
			e.forwarding.Six = visible(i, netip.Addr.Is6)
		}
	}
	return e.putForwardingLocked()
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
	w.Hi, w.Lo = packet.Words(a)
	return w
}

func (w weirAddress) addr() netip.Addr { return addrOf(w.Hi, w.Lo) }

// Flags of translations, enum meta of bpf/lib/types.h, and the rule that marks them.
const (
	metaWire   = 1 << 23
	metaSource = 1 << 25
	natRule    = 0xffffffff
	natFlow    = 255
)

// endWhere ends the entries of the state table for which gone returns true: states and, whole, translations.
func (e *Engine) endWhere(gone func(x *entry) bool) error {
	byPlace := map[uint32]*entry{}
	var end []*entry
	for x, err := range e.entries() {
		if err != nil {
			return err
		}
		nat := x.sides[0].Rule == natRule
		if nat {
			byPlace[x.place] = x
		}
		if gone(x) {
			end = append(end, x)
		}
	}
	var errs []error
	for _, x := range end {
		errs = append(errs, e.remove(x))
		if other := byPlace[x.sides[0].Track]; x.sides[0].Rule == natRule && other != nil && other.sides[0].Track == x.place {
			errs = append(errs, e.remove(other))
		}
	}
	return errors.Join(errs...)
}

// remove ends the state behind a copy, if it is still there.
func (e *Engine) remove(x *entry) error {
	return e.call.ask(&weirCall{Op: opRemove, Place: x.place, TagWord: x.tag, Count: goneCut})
}

// forwardMaps are the maps of bpf/lib/pod.h.
func (e *Engine) forwardMaps() map[string]*ebpf.Map {
	o := &e.objects
	return map[string]*ebpf.Map{
		"forwarding": o.Forwarding, "pods": o.Pods, "endpoints": o.Endpoints, "cards": o.Cards, "pod_counters": o.PodCounters,
		"buckets": o.Buckets, "published": o.Published, "masked_sources": o.MaskedSources, "nat_frags": o.NatFrags,
		"ways_kept": o.WaysKept,
	}
}
