package kernel

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/forward"
)

// What the settings have no longer ends with its translations: published and forwarded ports, and
// networks that are translated. The maps come first, so that no new translation is made. An engine
// may end or fail in between, and another one may bring translations of what this one never had. So
// whatever the maps say is compared with the table once for each engine. It is compared again when
// nothing is left of another engine.

// withdrawals are counted, so that those are known whose translations have not ended yet.
type withdrawals struct {
	known [4]bool // by kind of port: the map has all of them
	// nil before SetMasquerade
	masquerade *forward.Masquerade
	made, done uint64
}

// wanted is what translations may be there for.
type wanted struct {
	withdrawals
	ports map[weirPublishedKey]weirPublished // nil: not known
	// as in the map; what a pointer leads to is never changed
	services map[weirPublishedKey]*weirService
	pods     map[netip.Addr]bool
	// addresses that rules with nat give sources, if that is known
	natAddrs        map[netip.Addr]bool
	natEntriesKnown bool
}

func (e *Engine) wantedLocked() *wanted {
	return &wanted{withdrawals: e.withdrawals, ports: maps.Clone(e.published),
		services: maps.Clone(e.services),
		pods:     e.podAddrsLocked(), natAddrs: e.natEntries.addrs,
		natEntriesKnown: e.natEntriesKnown}
}

// endWithdrawn ends the translations of what was withdrawn.
func (e *Engine) endWithdrawn() error {
	e.mu.Lock()
	if e.withdrawals.done == e.withdrawals.made {
		e.mu.Unlock()
		return nil
	}
	w := e.wantedLocked()
	e.mu.Unlock()
	if err := e.endUnwanted(w); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.withdrawals.done = max(e.withdrawals.done, w.made)
	return nil
}

// endUnwantedLocked ends the translations that are not wanted, also if nothing was withdrawn: some
// may come from another engine, of which nothing is left.
func (e *Engine) endUnwantedLocked() error {
	e.withdrawals.made++
	w := e.wantedLocked()
	err := e.endUnwanted(w)
	if err == nil {
		e.withdrawals.done = w.made
	}
	return err
}

// endUnwanted ends the translations that are not wanted.
func (e *Engine) endUnwanted(w *wanted) error {
	var g weirGauge
	if err := e.objects.Gauges.Lookup(uint32(0), &g); err != nil {
		return fmt.Errorf("read the number of translations: %w", err)
	}
	if g.Nats == 0 {
		return nil
	}
	inner, err := e.innerEnds()
	if err != nil {
		return err
	}
	return e.endWhere(func(x *entry) bool {
		if x.sides[0].Rule != natRule || x.sides[0].Flags&metaWire == 0 {
			return false
		}
		flow, known := inner[x.partner()]
		from, to := x.original()
		if x.sides[0].Flags&metaSource != 0 {
			return known && !w.hides(flow.from.Addr(), from.Addr())
		}
		return !w.leads(weirPublishedKey{Addr: wordsOf(to.Addr()), Port: to.Port(),
			Proto: uint8(x.tag >> 24)}, flow.to, known)
	})
}

// leads reports whether a port leads to where a flow goes, if that is known. Ports of a kind that
// is not known yet do.
func (w *wanted) leads(at weirPublishedKey, to netip.AddrPort, known bool) bool {
	kind := toOther
	if w.pods[to.Addr()] {
		kind = toPod
	}
	if w.ports == nil || !w.known[kind] || kind == toOther && !w.known[toNATRule] ||
		!known && !w.known[toPod] {
		return true
	}
	whole := at.Addr
	v, there := w.ports[at]
	if !there {
		at.Addr = wordsOf(unspecified(at.Addr.addr()))
		v, there = w.ports[at]
	}
	if !there { // all of an address, which keeps ports and ids
		v, there = w.ports[weirPublishedKey{Addr: whole}]
		v.Port = uint32(at.Port)
	}
	switch {
	case !there:
		return kind == toPod && !w.known[toService]
	case v.Kind == toService:
		return !w.known[toService] || !known || w.services[at].find(to) >= 0
	}
	return !known || to == netip.AddrPortFrom(v.Addr.addr(), uint16(v.Port))
}

// unspecified returns the unspecified address of the family of an address.
func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// hides reports whether a source may have an address on the wire. Those of pods keep what they
// have.
func (w *wanted) hides(from, wire netip.Addr) bool {
	if w.masquerade == nil || !w.natEntriesKnown || w.pods[from] || w.natAddrs[wire] {
		return true
	}
	only := netip.PrefixFrom(from, from.BitLen())
	to, ok := w.masquerade.Behind(only)
	return slices.ContainsFunc(w.masquerade.Sources, func(s netip.Prefix) bool {
		return s.Contains(from)
	}) || ok && (!to.To.IsValid() || to.To == wire)
}
