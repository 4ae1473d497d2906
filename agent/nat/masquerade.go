package nat

import (
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/internal/forward"
)

// MasqueradeFile is an element of [[masquerade]] as it is written: the packets of a network behind
// the host get another source.
type MasqueradeFile struct {
	Source string `toml:"source"`
	To     string `toml:"to"` // "" for the address of the interface that they leave by
}

func (s *Settings) applyMasquerades(all []MasqueradeFile) error {
	for i, f := range all {
		one, err := f.sourceNAT()
		if err != nil {
			return fmt.Errorf("[[masquerade]] %d: %w", i+1, err)
		}
		for j, o := range s.Masquerades {
			if o.Source == one.Source {
				return fmt.Errorf("[[masquerade]] %d: source: %s is that of [[masquerade]] %d "+
					"already", i+1, one.Source, j+1)
			}
		}
		s.Masquerades = append(s.Masquerades, one)
	}
	return nil
}

// sourceNAT reads an element.
func (f MasqueradeFile) sourceNAT() (one forward.SourceNAT, err error) {
	one.Source, err = netip.ParsePrefix(f.Source)
	if err != nil || one.Source.Addr().Is4In6() {
		return one, fmt.Errorf(`source: %q is not a network; write "10.0.5.0/24"`, f.Source)
	}
	if masked := one.Source.Masked(); masked != one.Source {
		return one, fmt.Errorf("source: %s is an address in %s; write that", one.Source, masked)
	}
	switch a := one.Source.Addr(); {
	case one.Source.Bits() == 0:
		return one, fmt.Errorf("source: %s is everything; name the networks behind the host",
			one.Source)
	case a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast():
		return one, fmt.Errorf("source: no packets are routed from %s", one.Source)
	}
	if f.To == "" {
		return one, nil
	}
	one.To, err = netip.ParseAddr(f.To)
	a := one.To
	switch {
	case err != nil || a.Zone() != "" || a.Is4In6():
		return one, fmt.Errorf(`to: %q is not an address; write "203.0.113.9", or leave it out for `+
			"that of the interface", f.To)
	case a.Is4() != one.Source.Addr().Is4():
		return one, fmt.Errorf("%s and %s are of different address families", one.Source, a)
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast():
		return one, fmt.Errorf("to: %s is not an address that other hosts can answer to", a)
	}
	return one, nil
}
