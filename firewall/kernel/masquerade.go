package kernel

import (
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/internal/forward"
)

// SetMasquerade replaces what is translated behind the host's address, see forward.Forwarder.
// Existing translations continue.
func (e *Engine) SetMasquerade(m forward.Masquerade) error {
	if err := checkPorts(m); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	want := map[weirTableKey]bool{}
	all := append(append([]netip.Prefix(nil), m.Sources...), m.Except...)
	for _, p := range all {
		k := trieKey(p)
		want[k] = true
		// The longest prefix answers for all that hold it.
		flags := bit(held(p, m.Sources))*maskSource | bit(held(p, m.Except))*maskExcept
		if err := e.objects.MaskedSources.Put(k, flags); err != nil {
			return fmt.Errorf("write the translated sources to the kernel: %w", err)
		}
	}
	if err := prune(e.objects.MaskedSources, func(k weirTableKey) bool {
		return want[k]
	}); err != nil {
		return err
	}
	e.forwarding.Masquerade = bit(len(m.Sources) > 0)
	e.forwarding.Ports = 0
	clear(e.forwarding.Span[:])
	for i, r := range m.Ports {
		s := &e.forwarding.Span[i]
		s.First, s.Count = uint32(r.First), uint32(r.Last-r.First)+1
		e.forwarding.Ports += s.Count
	}
	return e.putForwardingLocked()
}

func checkPorts(m forward.Masquerade) error {
	if len(m.Sources) > 0 && len(m.Ports) == 0 || len(m.Ports) > forward.MaxPortRanges {
		return fmt.Errorf("masquerade: %d ranges of ports; from 1 to %d are possible", len(m.Ports),
			forward.MaxPortRanges)
	}
	for _, r := range m.Ports {
		if r.First == 0 || r.Last < r.First {
			return fmt.Errorf("masquerade: ports from %d to %d are none", r.First, r.Last)
		}
	}
	return nil
}

// held reports that a prefix lies in one of others.
func held(p netip.Prefix, others []netip.Prefix) bool {
	for _, o := range others {
		if o.Bits() <= p.Bits() && o.Contains(p.Addr()) {
			return true
		}
	}
	return false
}
