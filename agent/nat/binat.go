package nat

import (
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/internal/forward"
)

// Binat is an element of [[binat]]: 1:1 NAT. All that goes to Listen, but to a published or
// forwarded port, leads to To, and what To begins leaves as from Listen.
type Binat struct{ Listen, To netip.Addr }

// BinatFile is an element of [[binat]] as it is written.
type BinatFile struct {
	Listen string `toml:"listen"`
	To     string `toml:"to"`
}

// maxBinats is how many there may be.
const maxBinats = 1024

// inward is the half for what comes in, as the engine knows it.
func (b Binat) inward() forward.Published {
	return forward.Published{Host: netip.AddrPortFrom(b.Listen, 0),
		Pod: netip.AddrPortFrom(b.To, 0)}
}

// outward is the half for what To begins.
func (b Binat) outward() forward.SourceNAT {
	return forward.SourceNAT{Source: only(b.To), To: b.Listen, Keep: true}
}

func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// applyBinats follows applyMasquerades.
func (s *Settings) applyBinats(all []BinatFile) error {
	for i, f := range all {
		one, err := f.binat()
		if err != nil {
			return fmt.Errorf("[[binat]] %d: %w", i+1, err)
		}
		if i == maxBinats {
			return fmt.Errorf("[[binat]] %d: at most %d are possible", i+1, maxBinats)
		}
		for j, o := range s.Binats {
			switch {
			case o.Listen == one.Listen:
				return fmt.Errorf("[[binat]] %d: listen: %s is that of [[binat]] %d already",
					i+1, one.Listen, j+1)
			case o.To == one.To:
				return fmt.Errorf("[[binat]] %d: to: %s is that of [[binat]] %d already",
					i+1, one.To, j+1)
			case o.To == one.Listen || o.Listen == one.To:
				return fmt.Errorf("[[binat]] %d: %s and %s are those of [[binat]] %d in "+
					"another order", i+1, one.Listen, one.To, j+1)
			}
		}
		for j, m := range s.Masquerades {
			if m.To == one.Listen {
				return fmt.Errorf("[[binat]] %d: listen: %s is the address of [[masquerade]] "+
					"%d; give it another one", i+1, one.Listen, j+1)
			}
			if m.Source == only(one.To) {
				return fmt.Errorf("[[binat]] %d: to: %s has its address by [[masquerade]] %d "+
					"already; leave that out", i+1, one.To, j+1)
			}
		}
		s.Binats = append(s.Binats, one)
	}
	return nil
}

// binat reads an element.
func (f BinatFile) binat() (one Binat, err error) {
	if one.Listen, err = binatAddr("listen", f.Listen); err != nil {
		return one, err
	}
	if one.To, err = binatAddr("to", f.To); err != nil {
		return one, err
	}
	switch {
	case one.Listen.Is4() != one.To.Is4():
		return one, fmt.Errorf("%s and %s are of different address families", one.Listen, one.To)
	case one.Listen == one.To:
		return one, fmt.Errorf("listen and to have the same address, %s", one.To)
	}
	return one, nil
}

func binatAddr(key, text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil || a.Zone() != "" || a.Is4In6():
		return a, fmt.Errorf(`%s: %q is not an address; write "203.0.113.9"`, key, text)
	case !a.IsGlobalUnicast(): // so no broadcast address either
		return a, fmt.Errorf("%s: %s is not an address that packets are routed to", key, a)
	}
	return a, nil
}

// errOnlyAddress refuses to give the host's only address away.
type errOnlyAddress struct{ addr netip.Addr }

func (e errOnlyAddress) Error() string {
	return fmt.Sprintf("listen: %s is the only address of its interface: nothing would reach this "+
		"host by it any more", e.addr)
}

// Hint returns what to do instead.
func (errOnlyAddress) Hint() string {
	return "give the interface a second address for it, or forward single ports by [[forward]]"
}
