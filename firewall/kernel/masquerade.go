package kernel

import (
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/firewall"
)

// Flags of the trie of translated sources, bpf/lib/pod.h.
const (
	maskSource = 1
	maskExcept = 2
)

// SetMasquerade replaces what is translated behind the host's address, see firewall.Forwarder. Translations that exist go on.
func (e *Engine) SetMasquerade(m firewall.Masquerade) error {
	if len(m.Sources) > 0 && (m.PortLo == 0 || m.PortHi < m.PortLo) {
		return fmt.Errorf("masquerade: ports from %d to %d are none", m.PortLo, m.PortHi)
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
	if err := prune(e.objects.MaskedSources, func(k weirTableKey) bool { return want[k] }); err != nil {
		return err
	}
	e.forwarding.Masquerade = bit(len(m.Sources) > 0)
	e.forwarding.PortLo, e.forwarding.PortHi = uint32(m.PortLo), uint32(m.PortHi)
	return e.putForwardingLocked()
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
