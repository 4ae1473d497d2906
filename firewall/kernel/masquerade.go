package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/forward"
)

// SetMasquerade replaces what is translated behind the host's address, see forward.Forwarder.
// Existing translations continue, but for those of others than pods whose source is translated no
// longer, or to another address.
func (e *Engine) SetMasquerade(m forward.Masquerade) error {
	if err := checkMasquerade(m); err != nil {
		return err
	}
	e.mu.Lock()
	err := e.putMasqueradeLocked(m)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	return e.endWithdrawn()
}

// putMasqueradeLocked writes the prefixes and ports.
func (e *Engine) putMasqueradeLocked(m forward.Masquerade) error {
	held := e.masked
	if held == nil {
		var err error
		held, err = readAll[weirTableKey, weirMaskedSource](e.objects.MaskedSources)
		if err != nil {
			return fmt.Errorf("read the translated sources: %w", err)
		}
	}
	e.masked = nil // until all is written
	want := map[weirTableKey]weirMaskedSource{}
	whole := false // there is 1:1 NAT
	sources, except, near := setOf(m.Sources), setOf(m.Except), setOf(m.Near)
	for _, p := range m.Prefixes() {
		// The longest prefix answers for all that hold it.
		flags := bit(sources.holds(p))*maskSource | bit(except.holds(p))*maskExcept |
			bit(near.holds(p))*maskNear
		v := weirMaskedSource{}
		if to, ok := m.Behind(p); ok {
			flags |= maskBehind | bit(to.Keep)*maskKeep
			whole = whole || to.Keep
			if to.To.IsValid() {
				v.To = wordsOf(to.To)
			}
		}
		v.Flags = flags
		want[trieKey(p)] = v
	}
	changed := e.withdrawals.masquerade == nil
	for k, v := range held {
		changed = changed || v.Flags&maskBehind != 0 && want[k] != v
	}
	if changed {
		e.withdrawals.made++
	}
	e.withdrawals.masquerade = nil
	if err := putDifference(e.objects.MaskedSources, held, want); err != nil {
		return fmt.Errorf("write the translated sources to the kernel: %w", err)
	}
	e.masked = want
	e.forwarding.Masquerade = bit(len(m.Sources)+len(m.Others) > 0) | bit(whole)*masqueradeWhole
	e.forwarding.Sources = uint32(len(m.Others))
	e.forwarding.Ports = 0
	clear(e.forwarding.Span[:])
	for i, r := range m.Ports {
		s := &e.forwarding.Span[i]
		s.First, s.Count = uint32(r.First), uint32(r.Last-r.First)+1
		e.forwarding.Ports += s.Count
	}
	e.withdrawals.masquerade = &m
	return e.putForwardingLocked()
}

// podAddrsLocked are the addresses of the pods.
func (e *Engine) podAddrsLocked() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, v := range e.endpoints {
		for _, a := range v.Addr[:v.Count] {
			all[a.addr()] = true
		}
	}
	return all
}

func checkMasquerade(m forward.Masquerade) error {
	for _, o := range m.Others {
		if o.To.IsValid() && o.To.Is4() != o.Source.Addr().Is4() {
			return fmt.Errorf("masquerade %s: %s is of another family", o.Source, o.To)
		}
		if o.Keep && (!o.Source.IsSingleIP() || !o.To.IsValid()) {
			return fmt.Errorf("masquerade %s: only one address has another one for itself",
				o.Source)
		}
	}
	if len(m.Sources)+len(m.Others) > 0 && len(m.Ports) == 0 ||
		len(m.Ports) > forward.MaxPortRanges {
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

// prefixSet finds out whether a prefix lies in one of the set, in as many steps as these have
// lengths: a cluster has thousands of ranges.
type prefixSet struct {
	all     map[netip.Prefix]bool
	lengths []int
}

func setOf(all []netip.Prefix) prefixSet {
	s := prefixSet{all: make(map[netip.Prefix]bool, len(all))}
	for _, p := range all {
		s.all[p.Masked()] = true
		if !slices.Contains(s.lengths, p.Bits()) {
			s.lengths = append(s.lengths, p.Bits())
		}
	}
	return s
}

// holds reports that a prefix lies in one of the set.
func (s prefixSet) holds(p netip.Prefix) bool {
	return slices.ContainsFunc(s.lengths, func(bits int) bool {
		return bits <= p.Bits() && s.all[netip.PrefixFrom(p.Addr(), bits).Masked()]
	})
}
