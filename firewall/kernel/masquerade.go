package kernel

import (
	"fmt"
	"maps"
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
	held, err := e.maskedLocked()
	if err != nil {
		return err
	}
	want, whole := maskedBySettings(&m)
	changed := e.withdrawals.masquerade == nil
	for k, v := range held {
		changed = changed || !k.ofInstance() && v.Flags&maskBehind != 0 && want[k] != v
	}
	if changed {
		e.withdrawals.made++
	}
	e.withdrawals.masquerade = nil
	e.forwarding.Ports = 0
	clear(e.forwarding.Span[:])
	for i, r := range m.Ports {
		s := &e.forwarding.Span[i]
		s.First, s.Count = uint32(r.First), uint32(r.Last-r.First)+1
		e.forwarding.Ports += s.Count
	}
	e.forwarding.Masquerade = bit(len(m.Sources)+len(m.Others) > 0) | bit(whole)*masqueradeWhole
	if err := e.putMaskedLocked(want, uint32(len(m.Others))); err != nil {
		return err
	}
	e.withdrawals.masquerade = &m
	return nil
}

// ofInstance: the entry is that of an instance of nat.
func (k weirTableKey) ofInstance() bool { return k.Family[1]|k.Family[2] != 0 }

// maskedLocked returns what the trie of translated sources holds.
func (e *Engine) maskedLocked() (map[weirTableKey]weirMaskedSource, error) {
	if e.masked != nil {
		return e.masked, nil
	}
	held, err := readAll[weirTableKey, weirMaskedSource](e.objects.MaskedSources)
	if err != nil {
		return nil, fmt.Errorf("read the translated sources: %w", err)
	}
	return held, nil
}

// putNATSourcesLocked writes the sources of rules with nat beside what the settings translate.
func (e *Engine) putNATSourcesLocked() error {
	held, err := e.maskedLocked()
	if err != nil {
		return err
	}
	want, others := map[weirTableKey]weirMaskedSource{}, uint32(0)
	for k, v := range held {
		if !k.ofInstance() {
			want[k] = v
			others += bit(v.Flags&maskBehind != 0)
		}
	}
	if m := e.withdrawals.masquerade; m != nil {
		others = uint32(len(m.Others))
	}
	return e.putMaskedLocked(want, others)
}

// putMaskedLocked writes the sources that the settings translate, of which others are not pods, and
// those of rules with nat.
func (e *Engine) putMaskedLocked(want map[weirTableKey]weirMaskedSource, others uint32) error {
	held, err := e.maskedLocked()
	if err != nil {
		return err
	}
	if e.natEntriesPut.sources == nil && e.takenOver { // before the first rules
		if e.natEntriesPut, err = e.readNATEntriesLocked(); err != nil {
			return err
		}
	}
	entries := e.natEntriesPut.sources
	maps.Copy(want, entries)
	e.masked = nil // until all is written
	if err := putDifference(e.objects.MaskedSources, held, want); err != nil {
		return fmt.Errorf("write the translated sources to the kernel: %w", err)
	}
	e.masked = want
	e.forwarding.Sources = others + uint32(len(entries))
	e.forwarding.Masquerade &^= masqueradeNATRule
	if len(entries) > 0 {
		e.forwarding.Masquerade |= masqueradeNATRule | e.wholeByRule()
	}
	return e.putForwardingLocked()
}

// wholeByRule is MASQUERADE_WHOLE if a rule with nat gives an address away.
func (e *Engine) wholeByRule() uint32 {
	for k := range e.natEntriesPut.ports {
		if k.Proto == 0 {
			return masqueradeWhole
		}
	}
	return 0
}

// maskedBySettings lays out which sources are translated, and whether there is 1:1 NAT.
func maskedBySettings(m *forward.Masquerade) (want map[weirTableKey]weirMaskedSource, whole bool) {
	want = map[weirTableKey]weirMaskedSource{}
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
	return want, whole
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
			return fmt.Errorf("masquerade: %d-%d is not a range of ports", r.First, r.Last)
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
